# SPDX-License-Identifier: MIT
"""A later runner of equal models, in the same process, against separate models in float64."""

import types

import pytest
import torch
import torch.nn.functional as F

import dnnsuite
from dnnsuite import StepRunner, nn, optim

B, STEPS = 3, 5
LR = [0.05, 0.02, 0.08]


def doubled(x):
    return x * 2


def tripled(x):
    return x * 3


class Net(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.a, self.norm, self.b = torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 2)
        self.gain = 1.0

    def forward(self, x):
        return helper(self.b(torch.relu(self.norm(self.a(x))))) * self.gain


helper = doubled


class Trained:
    """A runner's losses, those of separate models, and the runner's mode after its first step."""

    def __init__(self, seed, *, gain=1.0, width=B, threads=1, momentum=0.9, smoothing=0.0):
        models = [Net(seed + index) for index in range(B)]
        for model in models:
            model.double().gain = gain
        data = torch.randn(STEPS, B, 6, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        labels = torch.randint(2, (STEPS, B, 6), generator=torch.Generator().manual_seed(seed))
        array = dnnsuite.fuse(models)
        optimizer = optim.SGD(array.parameters(), lr=LR, momentum=momentum)

        def losses(part, x, y):
            return nn.functional.cross_entropy(part(x), y, label_smoothing=smoothing)

        with StepRunner(array, optimizer, losses, width=width, threads=threads) as runner:
            found = []
            for x, y in zip(data, labels, strict=True):
                found.append(runner.step(x, y).losses().clone())
                self.mode = runner.mode if len(found) == 1 else self.mode
        self.found = torch.stack(found)
        self.expected = torch.stack(
            [self.separate(models[i], i, data[:, i], labels[:, i], momentum, smoothing) for i in range(B)], 1
        )

    @staticmethod
    def separate(model, index, data, labels, momentum, smoothing):
        own, losses = torch.optim.SGD(model.parameters(), lr=LR[index], momentum=momentum), []
        for x, y in zip(data, labels, strict=True):
            own.zero_grad()
            loss = F.cross_entropy(model(x), y, label_smoothing=smoothing)
            loss.backward()
            own.step()
            losses.append(loss.detach())
        return torch.stack(losses)

    def checked_mode(self):
        torch.testing.assert_close(self.found, self.expected, rtol=1e-9, atol=1e-11)
        return self.mode


@pytest.mark.parametrize(
    "options", [{"smoothing": 0.1}, {"smoothing": 0.11, "width": 1}, {"smoothing": 0.12, "width": 2, "threads": 2}]
)
def test_a_later_runner_of_equal_models_replays_its_first_step(options):
    assert Trained(0, **options).checked_mode() == "warming up"
    assert Trained(10, **options).checked_mode() == "captured"


@pytest.mark.parametrize(
    "other", [{"gain": 3.0}, {"momentum": 0.0}, {"smoothing": 0.25}, {"width": 1}], ids=lambda other: next(iter(other))
)
def test_a_runner_of_others_records_for_itself(other):
    Trained(0, smoothing=0.0625)
    assert Trained(20, **{"smoothing": 0.0625, **other}).checked_mode() == "warming up"


def test_another_function_under_a_name_that_the_models_call_is_another_step(monkeypatch):
    Trained(0, smoothing=0.03125)
    monkeypatch.setitem(globals(), "helper", tripled)
    assert Trained(30, smoothing=0.03125).checked_mode() == "warming up"


class Masked(torch.nn.Module):
    """Looks into its batch, as attention with a mask does, and lets torch.distributions check its scale."""

    def __init__(self, seed, checked=False):
        super().__init__()
        torch.manual_seed(seed)
        self.a, self.b, self.checked = torch.nn.Linear(4, 5), torch.nn.Linear(5, 2), checked

    def forward(self, x, mask):
        y = self.b(torch.relu(self.a(x)))
        if self.checked:
            y = torch.distributions.Normal(y, y.abs() + 1, validate_args=True).log_prob(torch.zeros_like(y))
        return y if mask.all() else y.masked_fill(~mask[:, None], 0.0) * 2


def masked_losses(part, x, mask):
    return part(x, mask).square().mean((1, 2))


def masked_modes(seed, *, width, checked=False, steps=6):
    """Modes after each step; every other batch is padded. Compares the losses with those of separate models."""
    models = [Masked(seed + index, checked).double() for index in range(B)]
    data = torch.randn(steps, B, 6, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    masks = torch.ones(steps, B, 6, dtype=torch.bool)
    masks[1::2, :, 4:] = False
    array = dnnsuite.fuse(models)
    modes, found = [], []
    with StepRunner(array, optim.SGD(array.parameters(), lr=LR), masked_losses, width=width, threads=1) as r:
        for x, mask in zip(data, masks, strict=True):
            found.append(r.step(x, mask).losses().clone())
            modes.append(r.mode)
    for index, model in enumerate(models):
        own = torch.optim.SGD(model.parameters(), lr=LR[index])
        for step in range(steps):
            own.zero_grad()
            loss = model(data[step, index], masks[step, index]).square().mean()
            loss.backward()
            own.step()
            torch.testing.assert_close(found[step][index], loss.detach(), rtol=1e-9, atol=1e-11)
    return modes


@pytest.mark.parametrize("checked", [False, True])
def test_a_later_runner_replays_each_outcome_of_what_python_reads_of_the_batch(checked):
    assert masked_modes(0, width=B, checked=checked)[0] == "warming up"
    assert masked_modes(10, width=B, checked=checked) == ["captured"] * 6


def test_one_shard_records_each_outcome_for_all():
    assert masked_modes(20, width=1)[4:] == ["captured", "captured"]


class Scheduled(torch.nn.Module):
    """Weighs its output by a counter that each forward moves on."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.a, self.b, self.calls = torch.nn.Linear(4, 5), torch.nn.Linear(5, 2), 0

    def forward(self, x):
        self.calls += 1
        return self.b(torch.relu(self.a(x))) * (0.5 + self.calls / 10)


@pytest.mark.parametrize("width", [1, B])
def test_numbers_that_change_are_still_inputs_after_an_edit(width):
    models = [Scheduled(index).double() for index in range(B)]
    own = [torch.optim.SGD(model.parameters(), lr=LR[0]) for model in models]
    array = dnnsuite.fuse(models)
    optimizer = optim.SGD(array.parameters(), lr=LR[0])
    data = torch.randn(12, B, 6, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    with StepRunner(array, optimizer, lambda part, x: part(x).square().mean((1, 2)), width=width, threads=1) as r:
        for step, x in enumerate(data):
            if step == 8:
                array.clone(0, optimizer, into=2)
                models[2].load_state_dict(models[0].state_dict())
            found = r.step(x).losses()
            for index, model in enumerate(models):
                own[index].zero_grad()
                loss = model(x[index]).square().mean()
                loss.backward()
                own[index].step()
                torch.testing.assert_close(found[index], loss.detach(), rtol=1e-9, atol=1e-11)
            assert step < 7 or r.mode == "captured", step


@pytest.mark.parametrize("runs", [None, 1, B])
def test_new_models_begin_with_their_own_counters_and_the_others_go_on(runs):
    models = [Scheduled(index).double() for index in range(B)]
    own = [torch.optim.SGD(model.parameters(), lr=LR[0]) for model in models]
    array = dnnsuite.fuse(models)
    optimizer = optim.SGD(array.parameters(), lr=LR[0])
    data = torch.randn(14, B, 6, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def losses(part, x):
        return part(x).square().mean((1, 2))

    def by_hand(x):
        optimizer.zero_grad()
        found = losses(array, x)
        found.sum().backward()
        optimizer.step()
        return found

    runner = runs and StepRunner(array, optimizer, losses, width=runs, threads=1)
    for step, x in enumerate(data):
        if step in (5, 8, 11):  # in one slot twice
            slot = 0 if step < 11 else 2
            models[slot] = Scheduled(step).double()
            own[slot] = torch.optim.SGD(models[slot].parameters(), lr=LR[0])
            array.replace(slot, models[slot], optimizer, lr=LR[0])
        found = runner.step(x).losses() if runner else by_hand(x)
        for index, model in enumerate(models):
            own[index].zero_grad()
            loss = model(x[index]).square().mean()
            loss.backward()
            own[index].step()
            torch.testing.assert_close(found[index].detach(), loss.detach(), rtol=1e-9, atol=1e-11)
    if runner:
        runner.close()


class Configured(torch.nn.Module):
    """Its first forward sets a value in an object, as those of transformers note the kind of their problem."""

    def __init__(self):
        super().__init__()
        self.a, self.config = torch.nn.Linear(4, 2), types.SimpleNamespace(problem=None)

    def forward(self, x):
        if self.config.problem is None:
            self.config.problem = "single"
        return self.a(x).square() * (2 if self.config.problem == "single" else 1)


@pytest.mark.parametrize("width", [1, 2, B])
def test_a_later_runner_sets_what_the_first_step_sets(width):
    for _ in range(3):
        array = dnnsuite.fuse([Configured() for _ in range(B)])
        optimizer = optim.SGD(array.parameters(), lr=0.1)
        with StepRunner(array, optimizer, lambda a, x: a(x).mean((1, 2)), threads=1, width=width, audit=1) as runner:
            for x in torch.randn(8, B, 3, 4):
                runner.step(x).losses()
            assert (runner.mode, runner.audits_passed > 0) == ("captured", True)
        assert array[0].config.problem == "single"
