# SPDX-License-Identifier: MIT
from dnnsuite.workflow import protocol


def test_statuses_are_not_those_of_signals_or_python() -> None:
    assert len({0, protocol.RESULT_EXIT, protocol.DISK_EXIT}) == 3
    assert protocol.DISK_EXIT < 128
    assert protocol.READY_FD != protocol.GO_FD
