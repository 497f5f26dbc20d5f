# SPDX-License-Identifier: MIT
import copy

import pytest
import torch

from dnnsuite import jobs
from dnnsuite.data import words
from dnnsuite.errors import InvalidArgument
from dnnsuite.suites.mila import unit_of

SMALL = {"emsize": 24, "nhid": 24, "bptt": 8, "vocab_size": 300, "dropout": 0.0}


def made(name="wlm", batch_size=4, options=SMALL, **settings):
    job = jobs.get(name)(jobs.JobConfig(batch_size=batch_size, options=options, data="synthetic", **settings))
    job.setup()
    return job


@pytest.mark.parametrize(("name", "precision"), [("wlm", "fp32"), ("wlmfp16", "fp16")])
def test_the_loss_falls(name, precision):
    job = made(name, batch_size=16, precision=precision)
    losses = []
    for _ in range(40):
        job.step()
        losses += job.losses()
    assert losses[0] == pytest.approx(5.7, abs=0.3)  # ln 300
    assert sum(losses[-5:]) / 5 < losses[0] - 0.5
    assert 4 < job.metrics()["val_loss"] < losses[0]


@pytest.mark.parametrize(("name", "vocabulary"), [("wlm", 33_278), ("wlmfp16", 33_280)])
def test_the_model_is_the_originals(name, vocabulary):
    job = made(name, batch_size=2, options={})
    embedding, head = vocabulary * 656, 656 * vocabulary + vocabulary
    gru = 2 * (3 * 656 * 656 * 2 + 2 * 3 * 656)
    assert job.provenance()["parameters_per_model"] == embedding + gru + head
    assert embedding + gru + head == {"wlm": 48_865_918, "wlmfp16": 48_868_544}[name]
    assert job.items_per_step == 2 * 35 == 2 * unit_of("wlm", job.unit)["items"]
    assert jobs.get(name).default_precision == ("fp16" if name == "wlmfp16" else "fp32")


def test_a_step_by_hand():
    job = made()
    separate = copy.deepcopy(job.model)
    state = torch.zeros(2, 4, 24)
    for k in range(2):
        tokens, targets, _ = job.batch(k)
        logits, state = separate(tokens, state.detach())
        probability = logits.softmax(2).gather(2, targets[..., None])
        loss = -probability.log().mean()
        separate.zero_grad()
        loss.backward()
        norm = torch.cat([p.grad.flatten() for p in separate.parameters()]).norm()
        with torch.no_grad():
            for p in separate.parameters():
                p -= 20 * p.grad * min(1.0, 0.25 / float(norm + 1e-6))
        job.step()
        torch.testing.assert_close(job.last_loss, loss.detach())
    for ours, theirs in zip(job.model.parameters(), separate.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_the_text_is_read_in_rows_and_begins_again():
    job = made()
    text = torch.tensor(words.load("synthetic", None, 300).train)
    length = len(text) // 4
    seen = [job.batch(i) for i in range((length - 1) // 8 + 1)]
    for row in range(4):
        column = torch.cat([tokens[:, row] for tokens, _, _ in seen[:-1]])
        assert torch.equal(column, text[row * length : row * length + len(column)])
    assert torch.equal(seen[0][1][:-1], seen[0][0][1:])
    assert [float(goes_on) for _, _, goes_on in seen] == [0.0] + [1.0] * (len(seen) - 2) + [0.0]
    assert torch.equal(seen[-1][0], seen[0][0])


def test_same_seed_same_losses():
    def losses(seed):
        job = made(options={**SMALL, "dropout": 0.5}, seed=seed)
        job.step()
        return job.losses()

    assert losses(5) == losses(5)
    assert losses(5) != losses(6)


def test_the_loss_scale_is_static():
    job = made("wlmfp16", precision="fp16")
    scaler = job.scaler()
    for _ in range(3):
        job.step()
        scaler.scale(torch.ones(()))
    assert scaler.get_scale() == 128.0
    assert (job.steps_tried, job.steps_skipped) == (3, 0)


def test_refused():
    with pytest.raises(InvalidArgument, match="'LSTM' is not GRU"):
        made(options={**SMALL, "model": "LSTM"})
    with pytest.raises(InvalidArgument, match="bptt must be 1 or more, got 0"):
        made(options={**SMALL, "bptt": 0})
    with pytest.raises(InvalidArgument, match=r"tokens, \d+ in each of 100000 rows: less than one segment of 8"):
        made(batch_size=100_000)
