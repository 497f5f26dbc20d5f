# SPDX-License-Identifier: MIT
"""Values that Python reads of a batch or of results choose among recordings, or are compared on the way."""

import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, optim
from dnnsuite._step.capture import looks
from dnnsuite._step.capture.record import StepRecorder
from helpers import make_models

B, STEPS = 3, 14


class Masked(torch.nn.Module):
    """Goes another way if nothing is padded, as attention with a mask does, and counts batches in a buffer."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 6)
        self.norm = torch.nn.BatchNorm1d(6)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x, mask):
        y = self.drop(self.norm(self.inner(x)))
        if mask.all():
            return y
        return y.masked_fill(~mask.unsqueeze(-1), 0.0) * 2


class Gaussian(torch.nn.Module):
    """Draws from a distribution whose parameters torch.distributions checks."""

    def __init__(self):
        super().__init__()
        self.mean, self.scale = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
        self.norm = torch.nn.BatchNorm1d(2)

    def forward(self, x):
        # Asked for: torch.compile, once used in a process, turns the default off.
        return torch.distributions.Normal(self.norm(self.mean(x)), self.scale(x).exp(), validate_args=True).rsample()


class Signed(torch.nn.Module):
    """Goes another way by a result, once in a while, after it has drawn numbers and counted a batch."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 2)
        self.norm = torch.nn.BatchNorm1d(2)

    def forward(self, x):
        y = self.norm(self.inner(x)) + torch.randn(2)
        return y if (x.sum() + 0 * y.sum()) < 50 else -3 * y


def masks(steps=STEPS):
    generator = torch.Generator().manual_seed(0)
    batches = []
    for step in range(steps):
        x = torch.randn(B, 5, 4, generator=generator)
        mask = torch.rand(B, 5, generator=generator) < (2.0 if step % 3 == 0 else 0.7)
        batches.append((x, mask))
    return batches


def steps_of(make, batches, capture, width=B, threads=1):
    array = dnnsuite.fuse(make_models(make, B), seeds=[1, 2, 3])
    optimizer = optim.Adam(array.parameters(), lr=[0.01, 0.02, 0.03])
    modes = []

    def loss(array, *batch):
        return array(*batch).square().mean((1, 2))

    with StepRunner(array, optimizer, loss, threads=threads, width=width, capture=capture) as runner:
        losses = []
        for batch in batches:
            losses.append(runner.step(*batch).losses().clone())
            modes.append(runner.mode)
    state = [*array.parameters(), *array.buffers()]
    return [torch.stack(losses), *(t.detach().clone() for t in state)], modes


def check(make, batches, width=B, threads=1, exact=True):
    """`exact`: no batch makes the models run one by one, which rounds otherwise."""
    captured, modes = steps_of(make, batches, True, width, threads)
    written, _ = steps_of(make, batches, False, width, threads)
    if exact:
        assert all(map(torch.equal, captured, written))
    torch.testing.assert_close(captured, written)
    return modes


@pytest.mark.parametrize(("width", "threads"), [(B, 1), (2, 1), (1, 2)])
def test_masks_with_and_without_padding_are_captured(width, threads):
    assert check(Masked, masks(), width, threads, exact=False)[-1] == "captured"


def test_a_recording_ends_when_models_of_another_shard_part_ways():
    """In step 7 masks of the first two models differ: from then on the third runs as they do, one by one."""
    x = torch.randn(B, 5, 4)
    batches = [(x + step, torch.ones(B, 5, dtype=torch.bool)) for step in range(12)]
    batches[7][1][0, 0] = False
    assert check(Masked, batches, width=2)[-1] == "captured"


def test_checks_of_distributions_are_made_in_replays():
    batches = [(torch.randn(B, 5, 4),) for _ in range(6)]
    assert check(Gaussian, batches)[-1] == "captured"
    array = dnnsuite.fuse(make_models(Gaussian, B))
    optimizer = optim.SGD(array.parameters(), lr=0.1)

    def loss(array, x):
        return array(x).square().mean((1, 2))

    with StepRunner(array, optimizer, loss, threads=1, width=B) as runner:
        for batch in batches:
            runner.step(*batch)
        assert runner.mode == "captured"
        before = [p.detach().clone() for p in array.parameters()]
        with pytest.raises(ValueError, match="scale"):
            runner.step(torch.full((B, 5, 4), torch.nan))
        assert all(map(torch.equal, before, array.parameters()))


class Scaled(torch.nn.Module):
    """Has a scale that no input reaches, as the policy of PPO has, and goes another way once it is large."""

    def __init__(self):
        super().__init__()
        self.mean, self.scale = torch.nn.Linear(4, 3), torch.nn.Parameter(torch.zeros(3))

    def forward(self, x):
        law = torch.distributions.Normal(self.mean(x), self.scale.exp())
        return law.log_prob(x[:, :3]) * (2 if self.scale.abs().sum() > 0.2 else 1) + self.scale


def test_what_python_decides_by_parameters_alone_is_asserted():
    modes = check(Scaled, [(torch.randn(B, 5, 4),) for _ in range(2 * STEPS)], width=1)
    assert modes[3] == "captured"
    assert modes[-1] == "captured"


def test_a_replay_that_reads_another_value_leaves_nothing():
    batches = [(torch.randn(B, 5, 4) + (9 if step == 6 else 0),) for step in range(10)]
    modes = check(Signed, batches)
    assert modes[5] == "captured"
    assert modes[-1] == "captured"


def test_numbers_that_keep_changing_are_given_up_with_their_place():
    def loss(array, x):
        return array(x).square().mean((1, 2)) * int((x.abs().sum() * 100).long())

    array = dnnsuite.fuse(make_models(lambda: torch.nn.Linear(4, 2), B))
    with StepRunner(array, optim.SGD(array.parameters(), lr=0.0), loss, threads=1, width=B) as runner:
        for _ in range(25):
            runner.step(torch.randn(B, 5, 4))
        assert "values of the batch that Python reads keep changing at test_looks.py:" in runner.mode


def recorded(function, x):
    with StepRecorder([x]) as recorder:
        result = function(x)
    recorder.recording.losses = recorder.slot(result).index
    return recorder.recording


def test_what_follows_from_the_batch_is_not_read_on_the_way():
    weight = torch.ones(4)

    def function(x):
        y = x * weight
        if (x > 9).any():
            return y
        weight.add_(1)
        return y + 1 if bool((y * weight).sum() > 1e9) else y * 2

    recording = recorded(function, torch.ones(4))
    assert [looks.looks_on_the_way(recording, [place]) for place in recording.looks] == [False, True]
    assert looks.Looks.of(recording).on_the_way
    assert len(looks.changed_before_looks(recording)) == 1
    begun = looks.begun_with_looks(recording)
    assert [call.name for call in begun.calls[:3]] == ["aten.gt.Scalar", "aten.any", "aten.eq.Scalar"]
    assert [begun.calls[place] for place in begun.looks] == [recording.calls[place] for place in recording.looks]


def test_what_is_written_on_the_way_to_a_value_stays_in_its_place():
    def function(x):
        y = x.clone()
        z = y * 2
        y.add_(1)
        return z if (y > 9).any() else z * 2

    recording = recorded(function, torch.ones(4))
    assert not looks.looks_on_the_way(recording, recording.looks)
    assert looks.begun_with_looks(recording).calls == recording.calls
