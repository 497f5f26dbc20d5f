# SPDX-License-Identifier: MIT
"""Calls of torch's random functions, read as arguments of our operator, or left to torch."""

import pytest
import torch

from dnnsuite.nn.random_draws import filled_by_ours, integers_by_ours, made_by_ours


@pytest.mark.parametrize(
    ("method", "args", "kwargs"),
    [
        ("cauchy_", (), {}),
        ("normal_", (0.0, torch.tensor(1.0)), {}),
        ("normal_", (0.0, 1.0, 2.0), {}),
        ("normal_", (True,), {}),
        ("normal_", (float("nan"),), {}),
        ("normal_", (0.0, float("inf")), {}),
        ("uniform_", (-3e38, 3e38), {}),
        ("uniform_", (), {"other": 1.0}),
        ("exponential_", (0.0,), {}),
    ],
)
def test_other_fills_are_torchs(method, args, kwargs):
    assert filled_by_ours(method, args, kwargs) is None


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("rand", (), {}),
        ("rand", (2,), {"size": (2,)}),
        ("rand", (-2,), {}),
        ("rand", (2.0,), {}),
        ("randn", (2,), {"layout": torch.strided}),
    ],
)
def test_other_factories_are_torchs(name, args, kwargs):
    assert made_by_ours(name, args, kwargs) is None


def test_factories_are_read():
    assert made_by_ours("rand", (2, 3), {}) == ((2, 3), torch.float32, "uniform")
    assert made_by_ours("randn", (torch.Size([4]),), {"dtype": torch.float64}) == ((4,), torch.float64, "normal")
    assert made_by_ours("randn", (), {"size": [5]}) == ((5,), torch.float32, "normal")


@pytest.mark.parametrize(
    ("args", "kwargs", "wanted"),
    [
        ((5, (2, 3)), {}, ((2, 3), 0, 5)),
        ((-1, 5, [2]), {}, ([2], -1, 5)),
        ((), {"high": 5, "size": (2,)}, ((2,), 0, 5)),
        ((-1,), {"high": 5, "size": (2,)}, ((2,), -1, 5)),
        ((5,), {"size": (2,), "dtype": torch.int64}, ((2,), 0, 5)),
        ((5, (2,)), {"dtype": torch.int32}, None),
        ((5, 5, (2,)), {}, None),
        ((0, 2**41, (2,)), {}, None),
        ((1, 2, 3, (2,)), {}, None),
        ((5.0, (2,)), {}, None),
        ((5, 2), {}, None),
        ((5, (-2,)), {}, None),
    ],
)
def test_integers_are_read(args, kwargs, wanted):
    assert integers_by_ours(args, kwargs) == wanted
