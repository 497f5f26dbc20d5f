# SPDX-License-Identifier: MIT
import math

import torch

import dnnsuite
from helpers import make_models


class Distances(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 3)
        self.act = torch.nn.ReLU()

    def forward(self, x):
        x = self.act(self.inner(x))
        return torch.cdist(x, x)


def test_lists_what_is_fused_and_what_is_not():
    array = dnnsuite.fuse(make_models(lambda: torch.nn.Sequential(Distances()), 2))
    assert [(c.name, c.layer, c.how) for c in array.coverage()] == [
        ("0.inner", "Linear", "fused"),
        ("0.act", "ReLU", "elementwise"),
    ]
    array(torch.randn(2, 5, 4))
    mapped = array.coverage()[0]
    assert (mapped.name, mapped.layer, mapped.how, mapped.reason) == ("0", "Distances", "mapped", "no rule for cdist")
    assert 0 < mapped.cost_s < 10


def test_cost_is_unknown_before_the_first_call():
    array = dnnsuite.fuse(make_models(lambda: torch.nn.Sequential(Distances()), 2))
    array.per_model("0", "for the test")
    (cover,) = array.coverage()
    assert cover.how == "per model"
    assert cover.reason == "for the test"
    assert math.isnan(cover.cost_s)


def test_says_what_is_shared():
    base = torch.nn.Linear(4, 4).requires_grad_(False)
    array = dnnsuite.fuse([torch.nn.Sequential(base, torch.nn.ReLU(), torch.nn.Linear(4, 2)) for _ in range(2)])
    assert [cover.shared for cover in array.coverage()] == [True, False, False]
    assert f"{(20 * 4 + 2 * 10 * 4) / 1e6:,.1f} MB" in array._repr_html_()


def test_print_shows_a_line_for_each_module():
    class Branch(torch.nn.Module):
        def forward(self, x):
            return x if x.mean() > 0 else -x

    array = dnnsuite.fuse([torch.nn.Sequential(torch.nn.Linear(4, 4), Branch()) for _ in range(3)])
    array(torch.randn(3, 8, 4))
    covers = array.coverage()
    first, second = str(covers).splitlines()
    assert first == "0  Linear  fused"
    assert second.startswith("1  Branch  per model  ")
    assert second.endswith(f" ms  {covers[1].reason}")
