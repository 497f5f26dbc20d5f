# SPDX-License-Identifier: MIT
import copy

import pytest
import torch

from dnnsuite.errors import InvalidArgument
from job_runs import losses, make, parameters

SMALL = {"hidden_size": 16, "vocab_size": 60, "max_length_train": 12, "dropout": 0.0}


def test_the_loss_falls():
    job = make("translator", 8, **{**SMALL, "lr": 0.01})
    first = []
    for i in range(40):
        target = job.batch(i)[1]
        first.append(losses(job, 1)[0] / (target[1:] != 0).sum(0).float().mean().item())
    assert first[0] == pytest.approx(4.1, abs=0.3)  # ln 60
    assert sum(first[-5:]) / 5 < first[0] - 0.5
    assert 12 < job.provenance()["data"]["pieces_per_sentence"] <= 2 * 12


def test_the_model_is_the_originals():
    h, v = 1024, 32_317
    lstm = lambda width: 4 * h * (width + h) + 8 * h  # noqa: E731
    encoder = 2 * lstm(h) + lstm(2 * h) + 2 * lstm(h)
    attention = 2 * h * h + h + h + 1
    decoder = lstm(h) + attention + 3 * lstm(2 * h)
    with torch.device("meta"):
        from dnnsuite.models.recurrent import GNMT

        assert sum(p.numel() for p in GNMT(v).parameters()) == v * h + encoder + decoder + h * v + v
    assert v * h + encoder + decoder + h * v + v == 160_665_150
    job = make("translator", 2, **SMALL)
    assert parameters(job) < 100_000
    assert job.items_per_step == 2
    assert job.options["lr"] == 5e-4


def test_a_step_by_hand():
    job = make("translator", 4, **{**SMALL, "grad_clip": 0.5})
    separate = copy.deepcopy(job.model)
    source, target, lengths = job.batch(0)
    probability = separate(source, torch.tensor(lengths), target[:-1]).softmax(2)
    loss = torch.zeros(())
    for column in range(4):
        for t, label in enumerate(target[1:, column].tolist()):
            if label != 0:
                row = probability[t, column].log()
                loss = loss - 0.9 * row[label] - 0.1 * row.mean()
    loss = loss / 4
    loss.backward()
    job.step()
    torch.testing.assert_close(job.last_loss, loss.detach())
    norm = torch.cat([p.grad.flatten() for p in separate.parameters()]).norm()
    assert norm > 0.5
    for ours, theirs in zip(job.model.parameters(), separate.parameters(), strict=True):
        grad = theirs.grad * 0.5 / norm
        # Adam's first step is -lr · g / (|g| + eps).
        torch.testing.assert_close(
            ours.detach(), theirs.detach() - 5e-4 * grad / (grad.abs() + 1e-8), atol=1e-5, rtol=0
        )


def test_same_seed_same_losses():
    small = {**SMALL, "dropout": 0.2}
    one = losses(make("translator", 2, seed=5, **small), 2)
    assert one == losses(make("translator", 2, seed=5, **small), 2)
    assert one != losses(make("translator", 2, seed=6, **small), 2)


def test_half_precision():
    (loss,) = losses(make("translator", 2, precision="bf16", **SMALL), 1)
    assert 10 < loss < 60
    with pytest.raises(InvalidArgument, match=r"'fp16' is not one of fp32, bf16, fp64 \(job translator on cpu"):
        make("translator", 2, precision="fp16", **SMALL)
