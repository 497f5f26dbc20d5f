# SPDX-License-Identifier: MIT
"""Decisions by floats that Python reads of tensors are followed: each way through a step has a recording."""

import math

import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, optim
from helpers import make_models

B = 3


class Iterated(torch.nn.Module):
    """Iterates a layer until it hardly changes, as a deep equilibrium model does."""

    def __init__(self, tolerance=1e-2, rate=0.0):
        super().__init__()
        self.inner, self.mix = torch.nn.Linear(4, 6), torch.nn.Linear(6, 6, bias=False)
        self.head, self.drop = torch.nn.Linear(6, 2), torch.nn.Dropout(rate)
        torch.nn.init.orthogonal_(self.mix.weight, 0.5)
        self.tolerance = tolerance

    def forward(self, x):
        injected = self.drop(self.inner(x))
        with torch.no_grad():
            z = torch.zeros_like(injected)
            for _ in range(30):
                before, z = z, torch.tanh(self.mix(z) + injected)
                if (z - before).abs().max().item() < self.tolerance:
                    break
        return self.head(torch.tanh(self.mix(z) + injected))


class Dropped(Iterated):
    """Draws numbers and counts batches inside of the iteration."""

    def __init__(self):
        super().__init__()
        self.norm, self.noise = torch.nn.BatchNorm1d(6), torch.nn.Dropout(0.2)

    def forward(self, x):
        z = injected = self.inner(x)
        for _ in range(12):
            before, z = z, torch.tanh(self.mix(self.noise(self.norm(z))) + injected)
            if (z - before).norm().item() < 3.5:
                break
        return self.head(z)


class Nested(Iterated):
    """Two loops, one in the other, and a comparison of two numbers that were read."""

    def forward(self, x):
        z = injected = self.inner(x)
        best = (z * z).sum().item()
        for _ in range(4):
            step = 1.0
            while abs((step * z).norm().item()) > 1.0 + x[0, 0].item() / 8:
                step = step * 0.5
            z = torch.tanh(self.mix(step * z) + injected)
            now = (z * z).mean().item()
            if not math.isfinite(now) or math.sqrt(now) - 0.5 * best > 0.4 or now == best:
                break
            best = min(best, now)
        return self.head(z)


class Late(Iterated):
    """Goes another way from the day on which a batch is large."""

    def forward(self, x):
        y = self.head(torch.tanh(self.inner(x)))
        return y if (x + 0 * y.sum()).max().item() < 40 else 2 * y


def losses_of(array, x):
    return array(x).square().mean((1, 2))


def clipped(array, x):
    """Scales a large loss by hand."""
    losses = losses_of(array, x)
    if losses.sum().item() > 0.25:
        losses = losses * 0.1
    return losses


def batches(steps, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    sizes = 0.2 + torch.rand(steps, B, 1, 1, generator=generator)
    return list((torch.randn(steps, B, 5, 4, generator=generator) * sizes).to(dtype))


def steps_of(make, data, capture=True, loss=losses_of, dtype=torch.float32, between=None, **options):
    array = dnnsuite.fuse(make_models(make, B, dtype), seeds=[1, 2, 3])
    optimizer = optim.Adam(array.parameters(), lr=[0.01, 0.02, 0.03])
    modes, found = [], []
    options = {"threads": 1, "width": 1, "capture": capture, **options}
    with StepRunner(array, optimizer, loss, **options) as runner:
        for index, x in enumerate(data):
            found.append(runner.step(x).losses().clone())
            modes.append(runner.mode)
            if between is not None:
                between(index, array, optimizer, runner)
    state = [*array.parameters(), *array.buffers()]
    return [torch.stack(found), *(t.detach().clone() for t in state)], modes


def check(make, data, exact=True, **options):
    """`exact`: the steps as written are no loop over plain models, which rounds otherwise."""
    captured, modes = steps_of(make, data, **options)
    written, _ = steps_of(make, data, capture=False, **options)
    if exact:
        torch.testing.assert_close(captured, written, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(captured, written, equal_nan=True)
    return modes


def trained_alone(make, data, dtype, loss=lambda model, x: model(x).square().mean()):
    """Losses of B separate torch models."""
    models = make_models(make, B, dtype)
    optimizers = [torch.optim.Adam(m.parameters(), lr=lr) for m, lr in zip(models, [0.01, 0.02, 0.03], strict=True)]
    found = []
    for xs in data:
        losses = [loss(model, x) for model, x in zip(models, xs, strict=True)]
        for one, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            one.backward()
            optimizer.step()
        found.append(torch.stack(losses).detach())
    return torch.stack(found)


def mostly(modes):
    """True if steps are replayed as soon as their ways are known."""
    return modes[len(modes) // 2 :].count("captured") > len(modes) // 4 and "eager" not in "".join(modes)


@pytest.mark.parametrize(("dtype", "threads"), [(torch.float32, 2), (torch.float64, 1)])
def test_iterations_until_a_tolerance_are_captured(dtype, threads):
    data = batches(30, dtype)
    assert mostly(check(Iterated, data, dtype=dtype, threads=threads))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_models_learn_what_they_do_alone(dtype):
    data = batches(30, dtype)
    captured, _ = steps_of(Iterated, data, dtype=dtype)
    torch.testing.assert_close(captured[0], trained_alone(Iterated, data, dtype), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("make", [Dropped, Nested, lambda: Iterated(rate=0.3)])
def test_draws_counts_and_loops_in_loops(make):
    assert mostly(check(make, 14 * batches(2)))


def test_a_decision_of_step_30_is_seen():
    data = batches(36)
    data[30][1, 0, 0] = 50.0
    data[33][1, 0, 0] = 45.0
    modes = check(Late, data)
    assert modes[29] == modes[-1] == "captured"
    assert modes[30] == "warming up"


def test_a_loss_that_is_scaled_by_hand():
    assert mostly(check(Iterated, 10 * batches(3), loss=clipped, threads=2))


def test_results_that_are_no_numbers_take_the_way_python_takes():
    data = batches(36)
    data[20][0], data[21][1] = torch.nan, torch.inf
    assert mostly(check(Iterated, data))


def test_a_tolerance_that_float32_rounds():
    """0.1 lies below the float32 nearest to it: Python compares in float64."""

    class Near(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 2)

        def forward(self, x):
            y = self.inner(x)
            return y if (x[0, 0] + 0 * y.sum()).item() <= 0.1 else 3 * y

    data = batches(20)
    for index, x in enumerate(data):
        x[:, 0, 0] = torch.nextafter(torch.tensor(0.1), torch.tensor(0.0)) if index % 3 else 0.1
    assert check(Near, data)[-1] == "captured"


def test_each_model_has_a_shard_of_its_own():
    array = dnnsuite.fuse(make_models(Iterated, B))
    optimizer = optim.Adam(array.parameters(), lr=0.01)
    with StepRunner(array, optimizer, losses_of, threads=1) as runner:
        for x in batches(16):
            runner.step(x)
        assert runner.width == 1
        assert not runner.mode.startswith("eager")


def test_edits_and_a_resumed_run():
    def between(index, array, optimizer, runner):
        if index == 20:
            array.replace(1, make_models(Iterated, 1)[0], optimizer, lr=0.02)
        if index == 30:
            state = {k: v.clone() for k, v in array.state_dict().items()}, optimizer.state_dict()
            array.load_state_dict(state[0])
            optimizer.load_state_dict(state[1])

    assert mostly(check(Iterated, batches(45), exact=False, between=between))


class Game(torch.nn.Module):
    """Two parts of a step; the second decides after the optimizer of the first."""

    def __init__(self):
        super().__init__()
        self.judge = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 1))
        self.maker, self.out = Iterated(), torch.nn.Linear(2, 4)

    def judged(self, x):
        return self.judge(x).square().mean() + (1 - self.judge(self.out(self.maker(x)))).square().mean()

    def passed(self, x):
        loss = self.judge(self.out(self.maker(x))).square().mean()
        return loss * 0.5 if loss.item() > 0.05 else loss


def played(capture, threads):
    array = dnnsuite.fuse(make_models(Game, B), seeds=[1, 2, 3])
    makers = [*array.maker.parameters(), *array.out.parameters()]
    optimizers = [optim.Adam(array.judge.parameters(), lr=0.01), optim.Adam(makers, lr=0.01)]
    parts = [lambda array, x: array.judged(x), lambda array, x: array.passed(x)]
    with StepRunner(array, optimizers, parts, threads=threads, width=1, capture=capture) as runner:
        steps = [(runner.step(x).losses().clone(), runner.mode) for x in batches(24)]
    losses, modes = zip(*steps, strict=True)
    return [*losses, *array.parameters(), *array.buffers()], list(modes)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_step_is_undone_with_the_update_of_its_first_part(threads):
    captured, modes = played(True, threads)
    assert all(map(torch.equal, captured, played(False, threads)[0]))
    assert mostly(modes)


def kept(array, x):
    losses = losses_of(array, x)
    seen.append(losses.sum().item())
    return losses


def handed_back(array, x):
    losses = losses_of(array, x)
    return losses / (1 + losses.sum().item())


def printed(array, x):
    losses = losses_of(array, x)
    f"{losses.sum().item():.3f}"
    return losses


seen = []


@pytest.mark.parametrize("loss", [kept, handed_back, printed])
def test_a_float_that_is_needed_itself_ends_the_capture_with_its_place(loss):
    seen.clear()
    modes = check(lambda: torch.nn.Linear(4, 2), batches(8), loss=loss)
    assert all(type(value) is float for value in seen)
    if loss is kept:
        assert modes[-1] == "eager: the loss function changes a value outside of it"
        return
    assert "hands a tensor's value to Python (as .item() does) at test_float_looks.py:" in modes[-1]
    assert f"in {loss.__name__}" in modes[-1]


def test_ways_that_keep_changing_are_given_up_with_their_place():
    def loss(array, x):
        losses = losses_of(array, x)
        for bit in range(12):  # each step another way
            if math.fabs((losses.sum() * 3e4 * 2**-bit).sin().item()) < 0.5:
                losses = losses * 1.01
        return losses

    modes = check(lambda: torch.nn.Linear(4, 2), batches(90), loss=loss)
    assert "keep leading it another way at test_float_looks.py:" in modes[-1]
