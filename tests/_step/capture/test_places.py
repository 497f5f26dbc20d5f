# SPDX-License-Identifier: MIT
"""Lines of the user's code."""

import torch

from dnnsuite._step.capture.unseen import in_a_loop, user_place


def test_the_innermost_line_of_users_code_is_named():
    places = []

    class Noting(torch.nn.Module):
        def forward(self, x):
            places.append(user_place())
            return x

    torch.nn.Sequential(Noting())(torch.zeros(1))
    line = Noting.forward.__code__.co_firstlineno + 1
    assert places == [f" at test_places.py:{line} in forward"]


def test_a_line_in_a_loop_is_known():
    found = []

    def forward(x):
        found.append(in_a_loop())
        for _ in range(1):
            found.append(in_a_loop())
        while x:
            x = False
            if found:
                found.append(in_a_loop())
        found.append(in_a_loop())
        return x

    forward(True)
    assert found == [False, True, True, False]
