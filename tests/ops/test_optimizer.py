# SPDX-License-Identifier: MIT
"""The steps' operator: what dnnsuite.optim does not reach. The formulas are compared with torch's in tests/optim."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest
import torch

from dnnsuite import ops
from dnnsuite.errors import InvalidArgument

B, STEPS = 3, 3
SHAPES = [(7, 5), (20_011,), (), (0,), (1, 16)]


def stacked(make, dtype=torch.float32, device="cpu"):
    """Parameters [B, ...]; the second is a view whose models are far apart."""
    tensors = [make(B, *shape).to(device, dtype) for shape in SHAPES]
    wide = torch.zeros(B, SHAPES[1][0] + 3, dtype=dtype, device=device)
    wide[:, : SHAPES[1][0]] = tensors[1]
    tensors[1] = wide[:, : SHAPES[1][0]]
    return tensors


def vectors(rule, device="cpu"):
    """Hyper-parameters that differ between the models, and are near what each is meant to be."""
    usual = {
        "lr": 0.01, "eps": 1e-6, "weight_decay": 0.01, "momentum": 0.5, "dampening": 0.1, "beta1": 0.8, "beta2": 0.9,
        "rho": 0.9, "alpha": 0.9, "lr_decay": 0.1, "momentum_decay": 0.004, "lambd": 0.01, "t0": 1.0,
        "etaminus": 0.5, "etaplus": 1.2, "step_size_min": 1e-6, "step_size_max": 50.0, "factor": 0.5, "limit": 0.5,
    }  # fmt: skip
    scale = torch.tensor([1.0, 0.9, 0.8], dtype=torch.float64, device=device)
    return [usual[name] * scale for name in ops.RULES[rule].hyper]


class Run:
    """Some steps of a rule with fixed random numbers."""

    def __init__(self, rule, dtype=torch.float32, device="cpu", models=slice(None)):
        self.rule, takes = rule, ops.RULES[rule]
        torch.manual_seed(1)
        part = [p[models] for p in stacked(torch.randn, dtype, device)]
        self.params = [p.clone() for p in part]
        self.states = [torch.zeros_like(p) for _ in takes.states for p in part]
        self.scalars = [torch.zeros(len(part[0]), dtype=torch.float64) for _ in takes.scalars for _ in part]
        self.scalars = [s.to(device) for s in self.scalars]
        self.grads = [[g[models] for g in stacked(torch.randn, dtype, device)] for _ in range(STEPS)]
        self.hyper = [v[models] for v in vectors(rule, device)]

    def step(self, number, **options):
        ops.optimizer_(self.rule, self.params, self.grads[number], self.states, self.scalars, self.hyper, **options)

    def all(self):
        return [*self.params, *self.states, *self.scalars]


UPDATES = [rule for rule, takes in ops.RULES.items() if takes.scalars]


@pytest.mark.parametrize("rule", UPDATES)
def test_a_model_does_not_feel_the_others(rule):
    torch.set_num_threads(2)
    base = Run(rule)
    for number in range(STEPS):
        base.step(number)
    torch.set_num_threads(1)
    alone, lost = Run(rule, models=slice(1, 2)), Run(rule)
    for grads in lost.grads:
        for grad in grads:
            grad[[0, 2]] = torch.nan  # their states and parameters are lost, ours must not be
    for number in range(STEPS):
        alone.step(number)
        lost.step(number)
    for a, b, c in zip(base.all(), alone.all(), lost.all(), strict=True):
        assert torch.equal(a[1], b[0])
        assert torch.equal(a[1], c[1])


@pytest.mark.parametrize("rule", UPDATES)
def test_an_inactive_model_keeps_every_bit(rule, device):
    run, other = Run(rule, device=device), Run(rule, device=device)
    run.step(0)
    other.step(0)
    before = [t.clone() for t in run.all()]
    run.step(1, active=torch.tensor([True, False, True], device=device))
    other.step(1)
    for now, old, moved in zip(run.all(), before, other.all(), strict=True):
        assert torch.equal(now[1], old[1])
        assert torch.equal(now[[0, 2]], moved[[0, 2]])


@pytest.mark.parametrize("rule", UPDATES)
def test_a_factor_is_a_multiplied_gradient(rule, device):
    run, other = Run(rule, torch.float64, device), Run(rule, torch.float64, device)
    factor = torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64, device=device)
    for grads in other.grads:
        for grad in grads:
            grad.mul_(-factor.view(-1, *[1] * (grad.dim() - 1)))
    for number in range(STEPS):
        run.step(number, factor=factor, maximize=True)
        other.step(number)
    for a, b in zip(run.all(), other.all(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_are_rounded_once(dtype):
    run = Run("adam", dtype)
    wide = [t.float() for t in run.params], [t.float() for t in run.states]
    scalars = [s.clone() for s in run.scalars]
    ops.optimizer_("adam", wide[0], [g.float() for g in run.grads[0]], wide[1], scalars, run.hyper)
    run.step(0)
    for narrow, exact in zip(run.params, wide[0], strict=True):
        assert torch.equal(narrow, exact.to(dtype))


def test_more_tensors_than_one_launch_holds(device):
    params = [torch.full((2, 3), float(i), device=device) for i in range(700)]
    grads = [torch.ones_like(p) for p in params]
    one = torch.tensor([1.0, 2.0], dtype=torch.float64, device=device)
    zero = torch.zeros_like(one)
    steps = [torch.zeros_like(one) for _ in params]
    ops.optimizer_("sgd", params, grads, [], steps, [one, zero, zero, zero])
    assert all(torch.equal(p.cpu(), i - torch.tensor([[1.0], [2.0]]).expand(2, 3)) for i, p in enumerate(params))
    assert all(step.tolist() == [0.0, 0.0] for step in steps)  # only steps with momentum count


def test_parameters_that_stepped_differently_keep_their_own_count():
    params, grads = [torch.zeros(1, 4) for _ in range(3)], [torch.ones(1, 4) for _ in range(3)]
    steps = [torch.tensor([float(n)], dtype=torch.float64) for n in (0, 9, 0)]
    moments = [torch.zeros(1, 4) for _ in range(6)]
    hyper = [torch.tensor([v], dtype=torch.float64) for v in (1.0, 0.9, 0.9, 0.0, 0.0)]
    ops.optimizer_("adam", params, grads, moments, steps, hyper)
    assert [step.item() for step in steps] == [1.0, 10.0, 1.0]
    assert torch.equal(params[0], params[2])
    expected = -0.1 / (1 - 0.9**10) / (0.1**0.5 / (1 - 0.9**10) ** 0.5)
    torch.testing.assert_close(params[1], torch.full((1, 4), expected))


def test_gradients_of_any_layout():
    params, one = [torch.zeros(2, 3, 4)], torch.ones(2, dtype=torch.float64)
    hyper, steps = [one, 0 * one, 0 * one, 0 * one], [torch.zeros_like(one)]
    grad = torch.randn(2, 4, 3).transpose(1, 2)
    ops.optimizer_("sgd", params, [grad], [], steps, hyper)
    assert torch.equal(params[0], -grad)
    ops.optimizer_("sgd", params, [torch.ones(1).expand(2, 3, 4)], [], steps, hyper)
    assert torch.equal(params[0], -grad - 1)


def test_nothing_to_do():
    none = torch.zeros(0, dtype=torch.float64)
    ops.optimizer_("sgd", [], [], [], [], [none] * 4)
    ops.optimizer_("sgd", [torch.zeros(0, 3)], [torch.zeros(0, 3)], [], [none], [none] * 4)


def step(**change):
    t, one = torch.zeros(2, 3), torch.ones(2, dtype=torch.float64)
    arguments = {
        "rule": "sgd_momentum",
        "params": [t],
        "grads": [t],
        "states": [torch.zeros(2, 3)],
        "scalars": [torch.zeros(2, dtype=torch.float64)],
        "hyper": [one] * 4,
    }
    ops.optimizer_(**(arguments | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rule": "lbfgs"}, "rule must be one of sgd, .*, not 'lbfgs'"),
        ({"grads": []}, "grads has 0 tensors for 1 params"),
        ({"grads": [torch.zeros(2, 4)]}, r"grads\[0\] must be like its parameter, 2 models of 3 numbers"),
        ({"grads": [torch.zeros(2, 3).double()]}, "got shape .2, 3., Double"),
        ({"states": []}, "states has 0 tensors for 1 params of a rule that needs 1 each"),
        ({"states": [torch.zeros(2, 3).double()]}, r"states\[0\] must be Float, not Double"),
        ({"scalars": [torch.zeros(2)]}, r"scalars\[0\] must be Double, not Float"),
        ({"hyper": [torch.ones(2).double()] * 3}, "hyper has 3 tensors, the rule sgd_momentum needs 4"),
        ({"hyper": [torch.ones(3).double()] * 4}, r"hyper\[0\] must have shape \[2\], not \[3\]"),
        ({"factor": torch.ones(2)}, "factor must be Double, not Float"),
        ({"active": torch.ones(2)}, "active must be Bool, not Float"),
        ({"params": [torch.zeros(3, 2).T]}, r"params\[0\] is written to, so each model's part must be contiguous"),
    ],
)
def test_bad_arguments(change, message):
    with pytest.raises(RuntimeError, match=message):
        step(**change)


def sgd_plan(device="cpu"):
    """A plan of one parameter [2, 3], and what a step of it takes."""
    params = [torch.zeros(2, 3, device=device)]
    plan = ops.optimizer_plan("sgd", params, [], [torch.zeros(2, dtype=torch.float64, device=device)])
    hyper = [torch.ones(2, dtype=torch.float64, device=device)] * 4
    return plan, [torch.ones(2, 3, device=device)], hyper


def change(plan, row, column, value):
    plan[row, column] = value
    return plan


RULE, DTYPE, MODELS, ENTRIES = range(4)  # columns of a plan's first row


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda plan: torch.zeros(2, 3), "plan must be what optimizer_plan made"),
        (lambda plan: plan[:1], "plan says that it has 1 parameters, but has rows for 0"),
        (lambda plan: change(plan, 0, ENTRIES, 10**9), "plan says that it has 1000000000 parameters"),
        (lambda plan: change(plan, 0, ENTRIES, -1), "plan says that it has -1 parameters"),
        (lambda plan: change(plan, 0, RULE, len(ops.RULES)), "plan has the rule 18, but there are 18"),
        (lambda plan: change(plan, 0, RULE, -1), "plan has the rule -1"),
        (lambda plan: change(plan, 0, DTYPE, 4), "plan has the dtype 4 and 2 models"),
        (lambda plan: change(plan, 0, MODELS, -2), "plan has the dtype 0 and -2 models"),
    ],
)
def test_the_operator_checks_its_plan(damage, message):
    plan, grads, hyper = sgd_plan()
    with pytest.raises(RuntimeError, match=message):
        torch.ops.dnnsuite.optimizer_step_(damage(plan), [], grads, hyper, None, None, None, False, False, False)


@pytest.mark.parametrize("other", [torch.zeros_like, torch.clone, lambda plan: plan[:]])
def test_a_plan_is_what_optimizer_plan_made(other):
    plan, grads, hyper = sgd_plan()
    with pytest.raises(InvalidArgument, match=r"what ops\.optimizer_plan made"):
        ops.optimizer_step_(other(plan), grads, hyper)


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps])
def test_a_plan_is_not_copied(copied):
    with pytest.raises(InvalidArgument, match="cannot be copied"):
        copied(sgd_plan()[0])


def test_a_plan_keeps_what_it_writes_to():
    memory = np.zeros((2, 3), dtype=np.float32)
    steps = np.zeros(2)
    alive = [weakref.ref(memory), weakref.ref(steps)]
    params = [torch.from_numpy(memory)]
    plan = ops.optimizer_plan("sgd", params, [], [torch.from_numpy(steps)])
    params[0].data = torch.zeros(2, 3)  # the parameter goes elsewhere, the plan does not
    del memory, steps, params
    gc.collect()
    _, grads, hyper = sgd_plan()
    ops.optimizer_step_(plan, grads, hyper)
    written, counted = (reference() for reference in alive)
    assert written is not None
    assert (written == -1).all()
    assert counted is not None
    assert (counted == 1).all()
    del plan, written, counted
    gc.collect()
    assert [reference() for reference in alive] == [None, None]


@pytest.mark.gpu
def test_a_step_on_cuda_needs_tickets():
    plan, grads, hyper = sgd_plan("cuda")
    with pytest.raises(RuntimeError, match="tickets are missing"):
        ops.optimizer_step_(plan, grads, hyper)
