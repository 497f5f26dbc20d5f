# SPDX-License-Identifier: MIT
"""What a forward leaves for its caller, in lists, globals, context variables and by hooks, is the step's own each time:
also where a part of the model begins anew because the models differ in what they decide."""

import contextvars
import copy

import pytest
import torch

import dnnsuite
from dnnsuite import optim

B, STEPS, LATE = 3, 10, 5
LEFT, COUNTS = [], {}
COLLECTED = contextvars.ContextVar("collected", default=None)


class Part(torch.nn.Module):
    """Leaves two tensors, and looks at its mask in between: there it begins anew if the models' differ."""

    def __init__(self):
        super().__init__()
        self.a, self.b = (torch.nn.Linear(4, 4, dtype=torch.float64) for _ in range(2))

    def forward(self, x, mask, leave):
        h = torch.relu(self.a(x))
        leave(h)
        y = self.b(h) if mask.all() else self.b(h * mask[..., None])
        leave(y)
        return y


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part, self.left, self.aux, self.ready = Part(), [], None, False


def penalty(left):
    return sum(one.pow(2).mean() for one in left)


class InAnAttribute(Net):
    def forward(self, x, mask):
        self.left.clear()
        return self.part(x, mask, self.left.append).pow(2).mean() + penalty(self.left)


class ByItsLength(Net):
    def forward(self, x, mask):
        return self.part(x, mask, lambda h: self.left.append(1)).pow(2).mean() * len(self.left)


class AsALoss(Net):
    def forward(self, x, mask):
        def add(h):
            self.aux = h.pow(2).mean() + (0 if self.aux is None else self.aux)

        self.aux = None
        return self.part(x, mask, add).pow(2).mean() + self.aux


class InAGlobal(Net):
    def forward(self, x, mask):
        LEFT.clear()
        return self.part(x, mask, LEFT.append).pow(2).mean() + penalty(LEFT)


class CountedInAGlobal(Net):
    def forward(self, x, mask):
        def count(h):
            COUNTS["n"] += 1

        COUNTS["n"] = 0
        return self.part(x, mask, count).pow(2).mean() * COUNTS["n"]


class InAContext(Net):
    def forward(self, x, mask):
        before = COLLECTED.set([])
        found = self.part(x, mask, lambda h: COLLECTED.get().append(h)).pow(2).mean()
        left = COLLECTED.get()
        COLLECTED.reset(before)
        return found + penalty(left)


class ByHooks(Net):
    """Registers the hooks in its first forward, as libraries do that collect hidden states."""

    def forward(self, x, mask):
        if not self.ready:
            for layer in (self.part.a, self.part.b):
                layer.register_forward_hook(lambda _, __, output: COLLECTED.get().append(output))
            self.ready = True
        before = COLLECTED.set([])
        found = self.part(x, mask, lambda h: None).pow(2).mean()
        left = COLLECTED.get()
        COLLECTED.reset(before)
        return found + penalty(left)


def batches(begin):
    """Inputs and masks; from step `begin` on the second model has padding."""
    x = torch.randn(STEPS, B, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(STEPS, B, 5, dtype=torch.bool)
    mask[begin:, 1, 3:] = False
    return list(zip(x, mask, strict=True))


def losses_apart(models, steps):
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.05) for model in models]
    found = []
    for batch in steps:
        row = [model(*own) for model, own in zip(models, zip(*batch, strict=True), strict=True)]
        for optimizer, loss in zip(optimizers, row, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        found.append([loss.item() for loss in row])
    return found


def losses_at_once(models, steps, threads):
    """Losses of an array that is trained by hand, with `threads=None`, or by a runner."""
    array = dnnsuite.fuse(models)
    optimizer = optim.SGD(array.parameters(), lr=0.05)
    if threads is not None:
        with dnnsuite.StepRunner(array, optimizer, lambda a, *batch: a(*batch), threads=threads) as runner:
            return [runner.step(*batch).losses().tolist() for batch in steps]
    found = []
    for batch in steps:
        optimizer.zero_grad()
        loss = array(*batch)
        loss.sum().backward()
        optimizer.step()
        found.append(loss.tolist())
    return found


KINDS = [InAnAttribute, ByItsLength, AsALoss, InAGlobal, CountedInAGlobal, InAContext, ByHooks]


@pytest.mark.parametrize("threads", [None, 1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_models_own_in_each_step(kind, threads):
    for begin in (0, LATE):
        torch.manual_seed(0)
        models = [kind() for _ in range(B)]
        expected = losses_apart(copy.deepcopy(models), batches(begin))
        LEFT.clear()
        found = losses_at_once(models, batches(begin), threads)
        torch.testing.assert_close(torch.tensor(found), torch.tensor(expected))


class Running(torch.nn.Module):
    """Keeps a mean of what it has seen, in a dictionary of numbers and in one outside."""

    def __init__(self):
        super().__init__()
        self.a, self.mean = torch.nn.Linear(4, 4, dtype=torch.float64), {"m": 0.0}

    def forward(self, x):
        self.mean["m"] = 0.9 * self.mean["m"] + 0.1
        return self.a(x).pow(2).mean() * self.mean["m"]


def test_a_trial_of_another_way_leaves_nothing_in_python():
    """By hand an array is timed against a loop over its models, from step 17 on."""
    models = [Running() for _ in range(B)]
    steps = [(x,) for x in torch.randn(30, B, 5, 4, dtype=torch.float64)]
    expected = losses_apart(copy.deepcopy(models), steps)
    torch.testing.assert_close(torch.tensor(losses_at_once(models, steps, None)), torch.tensor(expected))


class Logged(torch.nn.Module):
    """Counts in an object that all models have in common, once for each call of the array."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 4, dtype=torch.float64)

    def forward(self, x):
        COUNTS["calls"] = COUNTS.get("calls", 0) + 1
        return self.a(x).pow(2).mean()


def test_no_trial_is_made_of_code_that_changes_something_outside():
    COUNTS.clear()
    losses_at_once([Logged() for _ in range(B)], [(x,) for x in torch.randn(30, B, 5, 4).double()], None)
    assert COUNTS["calls"] == 30
