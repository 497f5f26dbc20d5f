# SPDX-License-Identifier: MIT
"""Windows are counted as torch counts them."""

import itertools

import torch

from dnnsuite.ops.windows import output_side


def test_as_many_as_a_convolution_of_torch_has():
    for n, k, s, p, d in itertools.product((5, 8), (1, 3), (1, 2), (0, 1), (1, 2)):
        found = torch.nn.functional.conv1d(torch.ones(1, 1, n), torch.ones(1, 1, k), None, s, p, d)
        assert output_side(n, k, s, p, d) == found.shape[2]
