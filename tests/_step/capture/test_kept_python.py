# SPDX-License-Identifier: MIT
"""Steps that do not count leave no trace in the user's objects: array against separate models in float64."""

import itertools
from collections import deque

import numpy as np
import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, optim
from dnnsuite._step.capture.comparison import CannotBeKept, KeptPython


class Counting(torch.nn.Module):
    """Counts in each forward, and keeps more than that count."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.count, self.flag, self.small = 0, False, np.float32(0.25)
        self.past, self.names = deque([0.1], maxlen=3), {"a": 1}
        self.factors = itertools.cycle([0.5, 1.5, 2.5])


class Flag(Counting):
    def forward(self, x):
        self.count, self.flag = self.count + 1, not self.flag
        return self.inner(x) * (2.0 if self.flag else 0.5) + self.count * 0.1


class Small(Counting):
    def forward(self, x):
        self.count, self.small = self.count + 1, np.float32(self.small + 0.125)
        return self.inner(x) * float(self.small) + self.count * 0.1


class Past(Counting):
    def forward(self, x):
        self.count += 1
        self.past.append(self.past[-1] + 0.1)
        return self.inner(x) * sum(self.past) + self.count * 0.1


class Cycle(Counting):
    def forward(self, x):
        self.count += 1
        return self.inner(x) * next(self.factors) + self.count * 0.1


class TypeChanges(Counting):
    def forward(self, x):
        self.count = self.count + 2 if self.count < 8 else self.count + 0.5
        return self.inner(x) * self.count


class OfClass(Counting):
    scale = 0.1

    def forward(self, x):
        return self.inner(x) * self.scale + type(self).scale


class Remembers(Counting):
    def __init__(self):
        super().__init__()
        total = 0.0

        def grow():
            nonlocal total
            total += 0.1
            return total

        self.grow = grow

    def forward(self, x):
        return self.inner(x) * self.grow()


class Carries(Counting):
    """Carries a tensor of its own, and one that is made in each second step, from step to step."""

    def __init__(self):
        super().__init__()
        self.factors, self.carried = None, None

    def forward(self, x):
        self.count += 1
        before = x if self.carried is None else self.carried
        after = before * 0.5 + self.count * 0.1
        self.carried = after.detach()
        if hasattr(self, "late"):
            del self.late
        else:
            self.late = after.detach() + 1
            after = after + 1
        return self.inner(x) * after


def made(kind, seed):
    torch.manual_seed(seed)
    return kind().double()


def trained(array, optimizer, batches, threads, before):
    with StepRunner(
        array, optimizer, lambda part, x: part(x).square().mean((1, 2)), width=2 // threads, threads=threads
    ) as runner:
        losses = []
        for index, x in enumerate(batches):
            before(index)
            losses.append(runner.step(x))
        return torch.stack([step.losses() for step in losses])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", [Flag, Small, Past, Cycle, TypeChanges, OfClass, Remembers, Carries])
def test_as_separate_models(kind, threads):
    def before(index):
        OfClass.scale = 0.1 + 0.01 * index

    models, separate = ([made(kind, seed) for seed in range(2)] for _ in range(2))
    batches = torch.randn(12, 2, 4, 3, dtype=torch.float64)
    array = dnnsuite.fuse(models)
    losses = trained(array, optim.SGD(array.parameters(), lr=1e-3), batches, threads, before)
    optimizers = [torch.optim.SGD(model.parameters(), lr=1e-3) for model in separate]
    for index, batch in enumerate(batches):
        before(index)
        for number, (model, optimizer) in enumerate(zip(separate, optimizers, strict=True)):
            optimizer.zero_grad()
            loss = model(batch[number]).square().mean()
            loss.backward()
            optimizer.step()
            torch.testing.assert_close(losses[index, number], loss.detach())


def test_containers_and_attributes_are_put_back():
    module = Counting()
    module.factors = None
    kept = KeptPython(module, [])
    past, names = module.past, module.names
    module.flag, module.late = True, 3
    past.append(5.0)
    names["b"] = 2
    kept.put_back()
    assert (module.flag, list(past), names) == (False, [0.1], {"a": 1})
    assert module.past is past
    assert not hasattr(module, "late")


def test_an_iterator_is_named():
    with pytest.raises(CannotBeKept, match="cycle"):
        KeptPython(Counting(), [])


class Numbered(torch.nn.Module):
    """Its forward counts, so a step that is run in addition has something to put back."""

    def __init__(self):
        super().__init__()
        self.inner, self.count = torch.nn.Linear(3, 3), 0

    def forward(self, x):
        self.count += 1
        return self.inner(x) * self.count


class Trainer:
    """Object that holds an array, its runner and the loss function, as scripts have it."""

    def __init__(self, array, optimizer):
        def losses(array, x):
            return self.factor * array(x).square().mean((1, 2))

        self.array, self.factor = array, 2.0
        self.runner = StepRunner(array, optimizer, losses, threads=1, width=2)


def test_a_runner_that_code_reaches_is_not_looked_into():
    array = dnnsuite.fuse([Numbered() for _ in range(2)])
    trainer = Trainer(array, optim.SGD(array.parameters(), lr=0.1))
    trainer.data = np.arange(4)
    trainer.data.flags.writeable = False  # as a mapped file's
    runner = trainer.runner
    runner.held = [[number] for number in range(30_000)]  # as many as recordings have parts
    with runner:
        for _ in range(12):
            runner.step(torch.randn(2, 4, 3))
        runner.synchronize()
        assert runner.mode.startswith("captured")
