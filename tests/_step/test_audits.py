# SPDX-License-Identifier: MIT
"""Audits: a replayed step is now and then run both ways, and one that differs is not taken."""

import copy
import gc
import pickle

import pytest
import torch

import dnnsuite
from dnnsuite import nn, optim
from dnnsuite.errors import InvalidArgument, StaleRecording

# What no guard sees: a setting that the interpreter keeps in C. A threshold some objects higher changes nothing else.
BEFORE = gc.get_threshold()


@pytest.fixture(autouse=True)
def threshold():
    yield
    gc.set_threshold(*BEFORE)


def unseen():
    return 1.0 + gc.get_threshold()[0] - BEFORE[0]


def change_unseen():
    gc.set_threshold(BEFORE[0] + 2, *BEFORE[1:])


class Net(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.inner, self.norm = torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)
        self.head = torch.nn.Linear(4, 2)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.head(torch.relu(self.norm(self.inner(x))))


def losses(array, x, y):
    return nn.functional.mse_loss(array(x), y) * unseen()


def trained(B=3, width=3, **options):
    array = dnnsuite.fuse([Net(seed) for seed in range(B)])
    optimizer = optim.SGD(array.parameters(), lr=[0.1 / (1 + i) for i in range(B)], momentum=0.9)
    x = torch.randn(B, 8, 3, generator=torch.Generator().manual_seed(1))
    runner = dnnsuite.StepRunner(array, optimizer, losses, width=width, **options)
    return array, optimizer, runner, (x, torch.ones(B, 8, 2))


def capture(runner, batch):
    """Train until steps are replayed."""
    for _ in range(20):
        runner.step(*batch)
        if runner.mode == "captured":
            return
    raise AssertionError(runner.mode)


def same(a, b):
    return a.keys() == b.keys() and all(
        torch.equal(a[name], b[name]) if isinstance(a[name], torch.Tensor) else True for name in a
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_a_stale_recording_is_found_at_the_tenth_replay_and_changes_nothing(threads):
    array, optimizer, runner, batch = trained(threads=threads, width=2)
    with runner:
        capture(runner, batch)
        runner.step(*batch)
        change_unseen()
        for _ in range(8):  # the second to the ninth replay
            runner.step(*batch).losses()
        before = copy.deepcopy((array.state_dict(), optimizer.state_dict()["state"]))
        calls = array[0].calls
        with pytest.raises(StaleRecording, match=r"inner\.weight of model 0 differs by .*not taken"):
            runner.step(*batch)
        assert same(before[0], array.state_dict())
        for place, state in optimizer.state_dict()["state"].items():
            assert same(before[1][place], state)
        assert array[0].calls == calls

        assert runner.mode.startswith("eager: ")
        assert "inner.weight" in runner.mode
        assert runner.audits_passed == 0
        reference = nn.functional.mse_loss(copy.deepcopy(array)(batch[0]), batch[1]) * unseen()
        found = runner.step(*batch).losses()  # an eager step, which is taken
        torch.testing.assert_close(found, reference.detach())
        assert array[0].calls == calls + 1
        assert not torch.equal(before[0]["inner.weight"], array.state_dict()["inner.weight"])


def test_a_runner_that_was_stale_records_again_after_refresh():
    _, _, runner, batch = trained(threads=1, audit=1)
    with runner:
        capture(runner, batch)
        change_unseen()
        with pytest.raises(StaleRecording):
            runner.step(*batch)
        runner.refresh()
        capture(runner, batch)


def test_refresh_records_anew_where_no_audit_has_found_the_change():
    array, optimizer, runner, batch = trained(threads=1, audit=0)
    with runner:
        capture(runner, batch)
        change_unseen()
        runner.refresh()
        for _ in range(4):
            expected = nn.functional.mse_loss(copy.deepcopy(array)(batch[0]), batch[1]) * unseen()
            torch.testing.assert_close(runner.step(*batch).losses(), expected.detach())
    with dnnsuite.StepRunner(array, optimizer, losses, threads=1, audit=0) as later:
        expected = nn.functional.mse_loss(copy.deepcopy(array)(batch[0]), batch[1]) * unseen()
        torch.testing.assert_close(later.step(*batch).losses(), expected.detach())


def test_a_later_runner_does_not_replay_a_stale_recording():
    _, _, runner, batch = trained(threads=1, audit=1)
    with runner:
        capture(runner, batch)
        change_unseen()
        with pytest.raises(StaleRecording):
            runner.step(*batch)
    _, _, runner, batch = trained(threads=1, audit=1)
    with runner:
        capture(runner, batch)
        runner.step(*batch)
        assert runner.audits_passed == 1


@pytest.mark.parametrize(
    "options",
    [
        {"threads": 1},
        {"threads": 2, "width": 1},
        {"threads": 1, "accumulate": 2},
        {"threads": 1, "flush_denormals": False},
    ],
)
def test_audits_of_ordinary_models_pass_and_change_no_bit(options):
    found = []
    for audit in (0, 1):
        array, optimizer, runner, batch = trained(audit=audit, **options)
        with runner:
            for number in range(30):
                optimizer.param_groups[0]["lr"] = [0.1 / (1 + number + i) for i in range(3)]
                runner.step(*batch)
            runner.synchronize()
            assert runner.mode == "captured"
            found.append((array.state_dict(), array[0].calls))
            assert runner.audits_passed == 0 if audit == 0 else runner.audits_passed > 15
            assert ("audit" in repr(runner)) == (audit > 0)
    assert same(found[0][0], found[1][0])
    assert found[0][1] == found[1][1] == 30 * options.get("accumulate", 1)


def test_audits_pass_with_autocast_and_a_scaler():
    B = 2
    array = dnnsuite.fuse([Net(seed) for seed in range(B)])
    scaler = optim.GradScaler("cpu", B=B)
    runner = dnnsuite.StepRunner(
        array, optim.Adam(array.parameters(), lr=1e-2), losses, threads=1, width=2, scaler=scaler, audit=1
    )
    x, y = torch.randn(B, 8, 3), torch.ones(B, 8, 2)
    with runner, torch.autocast("cpu", torch.bfloat16):
        for _ in range(12):
            runner.step(x, y)
        assert runner.mode == "captured"
        assert runner.audits_passed > 4


class Redundancy(torch.nn.Module):
    """Barlow Twins' loss writes into a diagonal, whose gradient is copied from an expanded one."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 4)

    def forward(self, x):
        z = self.inner(x)
        return torch.diagonal(z.T @ z).add_(-1).pow_(2).sum()


@pytest.mark.parametrize("threads", [1, 2])
def test_an_audit_puts_nothing_back_that_a_step_only_reads(threads):
    array = dnnsuite.fuse([Redundancy() for _ in range(3)])
    optimizer = optim.SGD(array.parameters(), lr=0.01)
    with dnnsuite.StepRunner(array, optimizer, lambda a, x: a(x), threads=threads, width=3, audit=1) as runner:
        for x in torch.randn(6, 3, 5, 3):
            runner.step(x).losses()
        assert runner.audits_passed > 1


def test_a_run_of_a_thousand_steps_has_two_audits_and_one_in_each_thousand_more():
    array = dnnsuite.fuse([torch.nn.Linear(2, 1) for _ in range(2)])
    batch = torch.randn(2, 4, 2), torch.ones(2, 4, 1)
    passed = []
    with dnnsuite.StepRunner(array, optim.SGD(array.parameters(), lr=0.01), losses, threads=1) as runner:
        for number in range(1, 3001):
            runner.step(*batch)
            if number in (5, 20, 1000, 2000, 3000):
                passed.append(runner.audits_passed)
    assert passed == [0, 1, 2, 4, 5]


@pytest.mark.parametrize("wrong", [-1, 0.5, None, True, "often"])
def test_what_is_no_number_of_steps_is_refused(wrong):
    with pytest.raises(InvalidArgument, match="audit must be a whole number"):
        trained(audit=wrong)


def test_the_error_can_be_pickled():
    assert str(pickle.loads(pickle.dumps(StaleRecording("why")))) == "why"
