# SPDX-License-Identifier: MIT
"""Parameters of an array, of any shapes: for those of no layer, an optimizer looks through all objects of the process,
and those of all tests are a million."""

from collections import deque

import torch

from dnnsuite import nn

_alive = deque(maxlen=64)


def array_parameters(*values):
    """Parameters `[B, ...]` of these values, held by one layer."""
    layer = nn.ArrayModule(B=values[0].size(0))
    for place, value in enumerate(values):
        layer.register_parameter(f"weight_{place}", torch.nn.Parameter(value))
    _alive.append(layer)  # as long as the next tests last
    return list(layer.parameters())
