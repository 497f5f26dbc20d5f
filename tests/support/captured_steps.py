# SPDX-License-Identifier: MIT
"""Small models, optimizers and batches, trained with captured steps or with steps that run as written."""

import torch

import dnnsuite
from dnnsuite import StepRunner, nn, optim
from helpers import make_models

STEPS = 8


def mlp():
    return torch.nn.Sequential(
        torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
    )


def cross_entropy(array, x, y):
    return nn.functional.cross_entropy(array(x), y)


def adam(array, B):
    return optim.Adam(array.parameters(), lr=[0.1 / (i + 1) for i in range(B)])


def sgd(array, B):
    return optim.SGD(array.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=[0.1 * i for i in range(B)])


def adadelta(array, B):
    return optim.Adadelta(array.parameters(), lr=[0.5] * B)


def adamw(array, B):
    half = len(list(array.parameters())) // 2
    parameters = list(array.parameters())
    groups = [{"params": parameters[:half]}, {"params": parameters[half:], "lr": 0.01}]
    return optim.AdamW(groups, lr=0.1, amsgrad=True)


def batches(B, count, shape=(5, 6)):
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(B, *shape, generator=generator), torch.randint(4, (B, *shape[:-1]), generator=generator))
        for _ in range(count)
    ]


def train(make, make_optimizer, capture, *, B=3, prepare=None, between=None, loss=cross_entropy, data=None, **options):
    """Losses, state and optimizer state after some steps, and how they ran."""
    array = dnnsuite.fuse(make_models(make, B), seeds=range(B))
    if prepare is not None:
        prepare(array)
    optimizer = make_optimizer(array, B)
    losses = []
    with StepRunner(array, optimizer, loss, capture=capture, **{"width": B, "threads": 1, **options}) as runner:
        for index, batch in enumerate(data or batches(B, STEPS)):
            losses.append(runner.step(*batch).losses().clone())
            if between is not None:
                between(index, array, optimizer, runner)
        mode = runner.mode
    state = [*array.state_dict().values(), *(b for m in array.modules() for b in m._buffers.values() if b is not None)]
    state += [value for values in optimizer.state.values() for value in values.values()]
    return [*losses, *state], mode


def check(make, make_optimizer, expected="captured", **options):
    eager, _ = train(make, make_optimizer, False, **options)
    captured, mode = train(make, make_optimizer, True, **options)
    for a, b in zip(eager, captured, strict=True):
        assert torch.equal(a, b)
    assert mode == expected or (expected.endswith("…") and mode.startswith(expected[:-1])), mode
