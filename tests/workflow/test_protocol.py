# SPDX-License-Identifier: MIT
from dnnsuite.workflow import protocol


def test_the_ends_of_the_two_pipes_have_names_of_their_own() -> None:
    assert protocol.READY_FD != protocol.GO_FD
