# SPDX-License-Identifier: MIT
"""Parameters that a model does not use in a step are not stepped for that model, as torch skips a gradient of None."""

import pytest
import torch

from dnnsuite import StepRunner, fuse, optim
from helpers import assert_near, make_models

B, STEPS = 3, 12


class Switch(torch.nn.Module):
    """A mixture of experts as in SwitchTransformers: each sample goes to one expert, of which some get none."""

    def __init__(self):
        super().__init__()
        self.router = torch.nn.Linear(4, 3)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
        self.never = torch.nn.Linear(4, 4)
        self.out = torch.nn.Linear(4, 2)

    def forward(self, x):
        weights = self.router(x).softmax(-1)
        chosen, result = weights.argmax(-1), torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            places = (chosen == index).nonzero().flatten()
            if len(places):
                result = result.index_add(0, places, weights[places, index, None] * expert(x[places]))
        return self.out(torch.relu(result))


class Attribute(torch.nn.Module):
    """Models of which each uses one branch: a difference that a recorded step keeps."""

    def __init__(self):
        super().__init__()
        self.branches = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))
        self.out, self.which = torch.nn.Linear(4, 2), 0

    def forward(self, x):
        return self.out(torch.tanh(self.branches[self.which](x)))


class Tied(torch.nn.Module):
    """A branch over a weight that is used outside of it, too."""

    def __init__(self):
        super().__init__()
        self.shared, self.own = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.gate = Gate(self.shared, self.own)

    def forward(self, x):
        return self.gate(x) + self.shared(x)


class Gate(torch.nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, x):
        return self.layers[int(x.sum() > 0)](x)


def attribute_models():
    models = make_models(Attribute, B, torch.float64)
    for index, model in enumerate(models):
        model.which = index % 2
    return models


MODELS = {
    "switch": lambda: make_models(Switch, B, torch.float64),
    "attribute": attribute_models,
    "tied": lambda: make_models(Tied, B, torch.float64),
}
OPTIMIZERS = {
    "SGD": {"lr": 0.2, "momentum": 0.9},
    "Adam": {"lr": 0.05, "weight_decay": 0.1},
    "AdamW": {"lr": 0.05, "weight_decay": 0.1, "amsgrad": True},
}
MODES = {
    "by hand": None,
    "one shard": {"threads": 1, "width": B},
    "two shards": {"threads": 1, "width": 2},
    "a model each": {"threads": 1, "width": 1},
}
CASES = [
    ("switch", "SGD", "by hand"),
    ("switch", "Adam", "one shard"),
    ("switch", "AdamW", "two shards"),
    ("switch", "Adam", "a model each"),
    ("attribute", "Adam", "by hand"),
    ("attribute", "SGD", "one shard"),
    ("attribute", "AdamW", "a model each"),
    ("tied", "AdamW", "by hand"),
    ("tied", "SGD", "two shards"),
]


def batches():
    """Few samples of each model, so that experts get none."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(B, 2, 4, generator=generator, dtype=torch.float64) for _ in range(STEPS)]


def loss_of(model, x):
    return model(x).square().mean((-1, -2))


def separate(models, optimizers):
    unused = 0
    for x in batches():
        for index, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            optimizer.zero_grad()
            loss_of(model, x[index]).backward()
            unused += sum(p.grad is None for p in model.parameters())
            optimizer.step()
    assert unused > 0


@pytest.mark.parametrize(("kind", "name", "mode"), CASES, ids=[", ".join(case) for case in CASES])
def test_is_stepped_by_the_models_that_used_it(kind, name, mode):
    models = MODELS[kind]()
    array = fuse(models)
    optimizer = getattr(optim, name)(array.parameters(), **OPTIMIZERS[name])
    if MODES[mode] is None:
        for x in batches():
            optimizer.zero_grad()
            loss_of(array, x).sum().backward()
            optimizer.step()
    else:
        with StepRunner(array, optimizer, loss_of, **MODES[mode]) as runner:
            for x in batches():
                runner.step(x)
            runner.synchronize()
            assert kind != "attribute" or runner.mode == "captured"
    alone = [getattr(torch.optim, name)(m.parameters(), **OPTIMIZERS[name]) for m in models]
    separate(models, alone)
    for index, (model, one) in enumerate(zip(models, alone, strict=True)):
        for mine, theirs, held in zip(array[index].parameters(), model.parameters(), array.parameters(), strict=True):
            assert_near(mine, theirs)
            if name != "SGD" and one.state.get(theirs):
                assert optimizer.state[held]["step"][index] == one.state[theirs]["step"]


def test_gradients_of_several_backward_passes_and_a_clip_keep_what_was_used():
    models = make_models(Switch, B, torch.float64)
    array = fuse(models)
    optimizer = optim.Adam(array.parameters(), lr=0.05, weight_decay=0.1)
    alone = [torch.optim.Adam(m.parameters(), lr=0.05, weight_decay=0.1) for m in models]
    given = batches()
    for first, second in zip(given[::2], given[1::2], strict=True):
        for x in (first, second):
            loss_of(array, x).sum().backward()
        optim.clip_grad_norm_(array.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
        for index, (model, one) in enumerate(zip(models, alone, strict=True)):
            for x in (first, second):
                loss_of(model, x[index]).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            one.step()
            one.zero_grad()
    for index, model in enumerate(models):
        for mine, theirs in zip(array[index].parameters(), model.parameters(), strict=True):
            assert_near(mine, theirs)
    assert array.never.weight.grad is None
