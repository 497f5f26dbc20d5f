# SPDX-License-Identifier: MIT
"""Models with other rates of dropout that take the slots of others while a StepRunner is open."""

import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, nn, optim

RATES = (0.5, 0.0, 0.2)  # at first
REPLACED = ((1, 0.7), (0, 0.0), (2, 0.0), (1, 0.3), (2, 0.4))  # slot, rate


def model(seed, rate):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(rate), torch.nn.Linear(8, 3)
    ).double()


class Counted:
    """Cross entropy that counts the steps that Python runs, in an installed package, where no guard looks."""

    def __init__(self):
        self._key = f"calls {id(self)}"

    def __call__(self, array, x, y):
        torch.counted_by_tests = {**vars(torch).get("counted_by_tests", {}), self._key: self.calls + 1}
        return nn.functional.cross_entropy(array(x), y)

    @property
    def calls(self):
        return vars(torch).get("counted_by_tests", {}).get(self._key, 0)


def optimizer_of(array, lr):
    return optim.AdamW(array.parameters(), lr=lr, eps=1e-3)


class Alone:
    """Arrays of one model each, without a runner."""

    def __init__(self):
        self.held = [self._made(slot, rate, 1e-2 * (slot + 1)) for slot, rate in enumerate(RATES)]

    def _made(self, seed, rate, lr):
        array = dnnsuite.fuse([model(seed, rate)])
        return array, optimizer_of(array, [lr])

    def replace(self, slot, seed, rate, lr):
        self.held[slot] = self._made(seed, rate, lr)

    def seed(self, seeds):
        for (array, _), seed in zip(self.held, seeds, strict=True):
            nn.seed(array, [seed])

    def step(self, x, y):
        losses = []
        for array, opt in self.held:
            loss = nn.functional.cross_entropy(array(x[None]), y[None])
            opt.zero_grad()
            loss.sum().backward()
            opt.step()
            losses.append(loss.detach())
        return torch.cat(losses)


@pytest.mark.parametrize(("width", "threads"), [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2)])
def test_models_with_other_rates_train_as_alone(width, threads):
    array = dnnsuite.fuse([model(slot, rate) for slot, rate in enumerate(RATES)])
    opt = optimizer_of(array, [1e-2, 2e-2, 3e-2])
    alone = Alone()
    data = torch.Generator().manual_seed(0)
    with StepRunner(array, opt, Counted(), width=width, threads=threads) as runner:
        for number, (slot, rate) in enumerate(((None, None), *REPLACED)):
            if slot is not None:
                array.replace(slot, model(50 + number, rate), opt, lr=1e-2 * number)
                alone.replace(slot, 50 + number, rate, 1e-2 * number)
            seeds = [10 * number + slot for slot in range(3)]
            nn.seed(array, seeds)
            alone.seed(seeds)
            for N in (8, 8, 5, 8):
                x = torch.randn(N, 6, generator=data, dtype=torch.float64)
                y = torch.randint(3, (N,), generator=data)
                found = runner.step(dnnsuite.stack(x, 3), dnnsuite.stack(y, 3)).losses()
                torch.testing.assert_close(found, alone.step(x, y), rtol=1e-9, atol=1e-11)
        assert runner.mode == "captured"


def test_another_rate_is_written_in_place_and_records_nothing():
    array = dnnsuite.fuse([model(slot, rate) for slot, rate in enumerate(RATES)])
    opt, losses = optimizer_of(array, 1e-2), Counted()
    batch = dnnsuite.stack(torch.randn(8, 6, dtype=torch.float64), 3), dnnsuite.stack(torch.arange(8) % 3, 3)
    with StepRunner(array, opt, losses, width=3, threads=1) as runner:
        for _ in range(4):
            runner.step(*batch)
        places, calls = [p.data_ptr() for p in array.parameters()], losses.calls
        for slot, rate in REPLACED:
            array.replace(slot, model(60 + slot, rate), opt)
            runner.step(*batch)
            assert array[slot][2].p == rate
        assert [p.data_ptr() for p in array.parameters()] == places
        assert losses.calls == calls


def test_a_shard_that_dropped_nothing_drops_by_the_rate_of_a_new_model():
    array = dnnsuite.fuse([model(0, 0.0), model(1, 0.0)])
    opt, losses = optimizer_of(array, 0.0), Counted()
    batch = (dnnsuite.stack(torch.randn(64, 6, dtype=torch.float64), 2), dnnsuite.stack(torch.arange(64) % 3, 2))
    with StepRunner(array, opt, losses, width=1, threads=1) as runner:
        steps = [runner.step(*batch).losses() for _ in range(5)]
        array.replace(1, model(1, 0.9), opt)
        after = runner.step(*batch).losses()
    assert torch.equal(steps[-1][0], after[0])
    assert not torch.isclose(steps[-1][1], after[1])


@pytest.mark.parametrize("threads", [1, 2])
def test_rates_and_states_that_get_another_memory_count_in_the_next_step(threads):
    def trained(step_of):
        array = dnnsuite.fuse([model(slot, 0.0) for slot in range(2)])
        optimizer = optim.SGD(array.parameters(), lr=[0.1, 0.05], momentum=0.9)
        step = step_of(array, optimizer)
        torch.manual_seed(3)
        for number in range(12):
            if number == 6:
                rates = optimizer.param_groups[0]["lr"]
                rates.data = torch.full_like(rates, 0.01)
            if number == 8:
                for state in optimizer.state.values():
                    state["momentum_buffer"].data = torch.zeros_like(state["momentum_buffer"])
            step(torch.randn(2, 5, 6).double(), torch.randint(3, (2, 5)))
        return [value.detach().clone() for value in array.parameters()]

    def by_hand(array, optimizer):
        def step(x, y):
            optimizer.zero_grad()
            nn.functional.cross_entropy(array(x), y).sum().backward()
            optimizer.step()

        return step

    runners = []

    def captured(array, optimizer):
        loss = lambda array, x, y: nn.functional.cross_entropy(array(x), y)  # noqa: E731
        runners.append(StepRunner(array, optimizer, loss, threads=threads, audit=0))
        return runners[0].step

    found = trained(captured)
    with runners[0]:
        pass
    for value, other in zip(found, trained(by_hand), strict=True):
        torch.testing.assert_close(value, other, rtol=1e-9, atol=1e-11)
