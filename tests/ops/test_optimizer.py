# SPDX-License-Identifier: MIT
"""Optimizers against torch.optim, one per model, each with its own hyper-parameters."""

import pytest
import torch

from dnnsuite import ops

B, STEPS = 3, 4
SHAPES = [(7, 5), (20_011,), (), (0,), (1, 16)]
LR = [0.1, 0.01, 0.5]
DECAY = [0.0, 0.01, 0.1]


def stacked(make, dtype, device):
    """Parameters [B, ...]; the second is a view whose models are far apart."""
    tensors = [make(B, *shape).to(device, dtype) for shape in SHAPES]
    wide = torch.zeros(B, SHAPES[1][0] + 3, dtype=dtype, device=device)
    wide[:, : SHAPES[1][0]] = tensors[1]
    tensors[1] = wide[:, : SHAPES[1][0]]
    return tensors


def per_model(values, device):
    return torch.tensor(values, dtype=torch.float64, device=device)


class Own:
    """One way to run our operator: `step(params, grads, number)` with its states."""

    def __init__(self, name, dtype, device):
        self.name, self.device = name, device
        self.states = [stacked(torch.zeros, dtype, device) for _ in range(3)]

    def step(self, params, grads, number):
        def c(*values):
            return per_model(values * (B if len(values) == 1 else 1), self.device)

        lr, decay, (s1, s2, s3) = c(*LR), c(*DECAY), self.states
        if self.name == "adadelta":
            ops.adadelta_(params, grads, s1, s2, lr, c(0.9, 0.8, 0.95), c(1e-6), decay)
        elif self.name in ("adam", "adamw", "amsgrad"):
            largest = s3 if self.name == "amsgrad" else []
            betas = c(0.9, 0.8, 0.5), c(0.999, 0.99, 0.9)
            step = c(float(number))
            ops.adam_(params, grads, s1, s2, largest, step, lr, *betas, c(1e-8), decay, self.name == "adamw")
        else:
            nesterov, plain = self.name == "nesterov", self.name == "sgd"
            damp = c(0.0) if nesterov else c(0.0, 0.1, 0.2)
            buffers = [] if plain else s1
            ops.sgd_(params, grads, buffers, lr, c(0.9, 0.8, 0.5), damp, decay, nesterov, number == 1)


def theirs(name, params, model):
    lr, decay, i = LR[model], DECAY[model], model
    betas = ([0.9, 0.8, 0.5][i], [0.999, 0.99, 0.9][i])
    momentum, damp = [0.9, 0.8, 0.5][i], [0.0, 0.1, 0.2][i]
    return {
        "adadelta": lambda: torch.optim.Adadelta(params, lr, [0.9, 0.8, 0.95][i], 1e-6, decay),
        "adam": lambda: torch.optim.Adam(params, lr, betas, 1e-8, decay),
        "adamw": lambda: torch.optim.AdamW(params, lr, betas, 1e-8, decay),
        "amsgrad": lambda: torch.optim.Adam(params, lr, betas, 1e-8, decay, amsgrad=True),
        "sgd": lambda: torch.optim.SGD(params, lr, weight_decay=decay),
        "momentum": lambda: torch.optim.SGD(params, lr, momentum, damp, decay),
        "nesterov": lambda: torch.optim.SGD(params, lr, momentum, 0, decay, nesterov=True),
    }[name]()


NAMES = ["adadelta", "adam", "adamw", "amsgrad", "sgd", "momentum", "nesterov"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_equals_torch(name, dtype, device):
    params = stacked(torch.randn, dtype, device)
    alone = [[p[model].clone().requires_grad_() for p in params] for model in range(B)]
    optimizers = [theirs(name, own, model) for model, own in enumerate(alone)]
    own = Own(name, dtype, device)
    for number in range(1, STEPS + 1):
        grads = [torch.randn_like(p) for p in params]
        for model in range(B):
            for p, g in zip(alone[model], grads, strict=True):
                p.grad = g[model].clone()
            optimizers[model].step()
        own.step(params, grads, number)
    tolerance = {"rtol": 1e-5, "atol": 2e-6} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-13}
    for model in range(B):
        for p, expected in zip(params, alone[model], strict=True):
            torch.testing.assert_close(p[model], expected.detach(), **tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_does_not_feel_the_others(name):
    def run(models, threads):
        torch.set_num_threads(threads)
        torch.manual_seed(1)
        params, own = stacked(torch.randn, torch.float32, "cpu"), Own(name, torch.float32, "cpu")
        other = torch.tensor([model not in models for model in range(B)])
        for number in range(1, STEPS + 1):
            grads = [torch.randn_like(p) for p in params]
            for grad in grads:
                grad[other] = torch.nan  # their states and parameters are lost, ours must not be
            own.step(params, grads, number)
        return params

    base, mine = run({0, 1, 2}, 2), run({1}, 1)
    for a, b in zip(base, mine, strict=True):
        assert torch.equal(a[1], b[1])


def test_more_tensors_than_one_launch_holds(device):
    params = [torch.full((2, 3), float(i), device=device) for i in range(700)]
    grads = [torch.ones_like(p) for p in params]
    one = per_model([1.0, 2.0], device)
    zero = per_model([0.0, 0.0], device)
    ops.sgd_(params, grads, [], one, zero, zero, zero, False, True)
    assert all(
        torch.equal(p.cpu(), i - torch.tensor([[1.0], [2.0]]).expand(2, 3)) for i, p in enumerate(params)
    )


def test_gradients_of_any_layout():
    params, lr, zero = [torch.zeros(2, 3, 4)], per_model([1.0, 1.0], "cpu"), per_model([0.0, 0.0], "cpu")
    grad = torch.randn(2, 4, 3).transpose(1, 2)
    ops.sgd_(params, [grad], [], lr, zero, zero, zero, False, True)
    assert torch.equal(params[0], -grad)
    ops.sgd_(params, [torch.ones(1).expand(2, 3, 4)], [], lr, zero, zero, zero, False, True)
    assert torch.equal(params[0], -grad - 1)


def test_nothing_to_do():
    none = per_model([], "cpu")
    ops.sgd_([], [], [], none, none, none, none, False, True)


def bad(change):
    t, one = torch.zeros(2, 3), per_model([1.0, 1.0], "cpu")
    arguments = {
        "params": [t], "grads": [t], "momentum_buffers": [], "lr": one, "momentum": one, "dampening": one,
        "weight_decay": one, "nesterov": False, "first": True,
    }  # fmt: skip
    ops.sgd_(**(arguments | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grads": []}, "grads has 0 tensors for 1 params"),
        ({"grads": [torch.zeros(2, 4)]}, r"grads\[0\] must have shape \[2, 3\], not \[2, 4\]"),
        (
            {"momentum_buffers": [torch.zeros(2, 3).double()]},
            r"momentum_buffers\[0\] must be Float, not Double",
        ),
        ({"lr": torch.ones(2)}, "lr must be Double, not Float"),
        ({"lr": torch.ones(3).double()}, r"lr must have shape \[2\], not \[3\]"),
        (
            {"params": [torch.zeros(3, 2).T]},
            r"params\[0\] is written to, so each model's part must be contiguous",
        ),
    ],
)
def test_bad_arguments(change, message):
    with pytest.raises(RuntimeError, match=message):
        bad(change)
