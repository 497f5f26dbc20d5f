# SPDX-License-Identifier: MIT
import sys

import torch

import dnnsuite
from dnnsuite._fuse.rules.table import in_place, interpret, plain_name
from function_cases import check, run
from helpers import Negated, check_matches_models, make_models


def test_names():
    assert plain_name(torch.Tensor.__iadd__) == plain_name(torch.Tensor.add_) == plain_name(torch.add) == "add"
    assert plain_name(torch.Tensor.__invert__) == "invert"
    assert plain_name(torch.Tensor.__rsub__) == "rsub"
    assert in_place(torch.Tensor.__imul__)
    assert in_place(torch.Tensor.relu_)
    assert not in_place(torch.Tensor.__invert__)
    assert not in_place(torch.Tensor.__mul__)


def test_what_has_no_rule_runs_under_vmap_and_is_counted():
    output, report = run(lambda x: torch.linalg.inv(x @ x.mT + 3 * torch.eye(3)), torch.randn(2, 3, 3))
    assert output.shape == (2, 3, 3)
    assert dict(report.mapped) == {"linalg_inv": 1}
    check(lambda x: torch.linalg.inv(x @ x.mT + 3 * torch.eye(3)), torch.randn(2, 3, 3), mapped=True)


def test_a_gradient_that_vmap_has_wrong():
    class Selects(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)

        def forward(self, x):
            return torch.select_scatter(x, self.inner(x).sum(0), 0, 1)

    array = check_matches_models(make_models(Selects, 3), torch.randn(3, 5, 4))
    assert "the gradient of select_scatter" in array.coverage()[0].reason


class Measuring(torch.nn.Module):
    """Computes statistics without gradients, in a block or in an operator of the user's."""

    def __init__(self, off=torch.no_grad, operator=None):
        super().__init__()
        self.inner, self.off, self.operator = torch.nn.Linear(4, 4), off, operator

    def forward(self, x):
        x = self.inner(x)
        with self.off():
            scale = x.detach().abs().amax() + 1
            x = x if self.operator is None else self.operator.apply(x)
        return x / scale


def searches(array, x):
    """How often the call stack is looked at in a forward."""
    found = []

    def note(frame, event, argument):
        if event == "c_call" and argument is sys._getframe and frame.f_globals["__name__"] == interpret.__module__:
            found.append(frame)

    sys.setprofile(note)
    try:
        array(x)
    finally:
        sys.setprofile(None)
    return len(found)


def test_a_block_without_gradients_does_not_search_the_call_stack():
    array = check_matches_models(make_models(Measuring, 3), torch.randn(3, 5, 4))
    assert all(not cover.reason for cover in array.coverage())
    assert searches(array, torch.randn(3, 5, 4)) == 0
    array = dnnsuite.fuse(make_models(lambda: Measuring(torch.inference_mode), 3))
    assert searches(array, torch.randn(3, 5, 4)) > 0


def test_an_autograd_function_is_found_within_such_a_block():
    array = check_matches_models(make_models(lambda: Measuring(operator=Negated), 3), torch.randn(3, 5, 4))
    assert "autograd.Function" in array.coverage()[0].reason
