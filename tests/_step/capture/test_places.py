# SPDX-License-Identifier: MIT
"""Lines of the user's code."""

import torch

from dnnsuite._step.capture.places import user_place


def test_the_innermost_line_of_users_code_is_named():
    places = []

    class Noting(torch.nn.Module):
        def forward(self, x):
            places.append(user_place())
            return x

    torch.nn.Sequential(Noting())(torch.zeros(1))
    line = Noting.forward.__code__.co_firstlineno + 1
    assert places == [f" at test_places.py:{line} in forward"]
