# SPDX-License-Identifier: MIT
import math
import random
import statistics

import pytest
import torch

from dnnsuite import jobs
from dnnsuite.errors import InvalidArgument

SMALL = {"emsize": 32, "nhid": 64, "nlayers": 2, "nhead": 4}
BertJob = jobs.get("bert")


def config(B, lr=1.0, **arguments):
    models = max(B, 1)
    hyper = {"lr": [lr] * models, "gamma": [0.5] * models, "step_size": [1] * models}
    options = {**SMALL, **arguments.pop("options", {})}
    return jobs.JobConfig(**{"B": B, "hyper": hyper, "options": options, "threads": 1, **arguments})


@pytest.fixture
def started():
    """Makes jobs ready to step, and closes them afterwards."""
    made = []

    def start(*arguments, **named):
        job = BertJob(config(*arguments, **named))
        made.append(job)
        job.setup()
        return job

    yield start
    for job in made:
        job.close()


def test_loss_falls_on_real_text(started):
    job = started(2)
    history = []
    for _ in range(45):
        job.step()
        history.append(job.losses())
    assert "pydoc_data.topics" in job.provenance()["data"]["source"]
    for losses in zip(*history, strict=True):
        # A model that has learnt nothing stays at the entropy of a uniform guess.
        assert abs(losses[0] - math.log(8192)) < 0.5
        assert statistics.mean(losses[-10:]) < statistics.mean(losses[:3]) - 1


def test_hfta_sizes_are_the_defaults():
    job = BertJob(jobs.JobConfig())
    job.setup()
    layer = job.model.layers[0]
    assert len(job.model.layers) == 8
    assert (layer.self_attn.embed_dim, layer.self_attn.num_heads, layer.linear1.out_features) == (128, 8, 512)
    assert job.items_per_step == 32
    assert job.batch(0)[0].shape == (32, 32)


def test_hyperparameters_lie_in_hftas_ranges_and_follow_the_seed():
    values = BertJob.hyperparameters(random.Random(1), 200)
    assert values == BertJob.hyperparameters(random.Random(1), 200)
    for name, low, high in (("lr", 0.1, 10), ("gamma", 0.3, 0.99), ("step_size", 3, 20)):
        assert len(values[name]) == 200
        assert all(low <= value <= high for value in values[name])
    assert all(isinstance(value, int) for value in values["step_size"])


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_fused_equals_separate(dropout):
    record = BertJob.check_equality(config(3, lr=2.0, options={"dropout": dropout}), steps=3)
    assert record["passed"], record
    assert record["models"] == 3
    assert record["steps"] == 3
    assert len({row[0] for row in record["losses_fused"]}) == 3  # it did train


def test_equality_check_fails_when_one_mask_differs(monkeypatch):
    from dnnsuite.jobs import _separate

    original = _separate.stream_key
    monkeypatch.setattr(_separate, "stream_key", lambda seed, place: original(seed, place + (place == 3)))
    small = {"nlayers": 1, "bptt": 8, "vocab_size": 300}
    record = BertJob.check_equality(config(2, batch_size=2, precision="fp64", options=small), steps=3)
    assert not record["passed"]
    assert "in step 1, started from the same state" in record["message"]


def test_models_start_from_their_seeds(started):
    first, second = started(2, seed=10), started(2, seed=11)
    assert torch.equal(first.model.token.weight[1], second.model.token.weight[0])
    assert not torch.equal(first.model.token.weight[0], second.model.token.weight[0])


def test_schedule_halves_each_models_rate(started):
    job = started(2)
    job.step()
    job.synchronize()
    job.end_epoch()
    assert job.optimizers[0].param_groups[0]["lr"].tolist() == [0.5, 0.5]


def test_items_count_all_models(started):
    assert started(3, batch_size=4).items_per_step == 12


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "amp"])
def test_on_a_gpu_fused_equals_separate(precision):
    record = BertJob.check_equality(config(3, device="cuda", precision=precision))
    assert record["passed"], record


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"B": -1}, "B must be 0"),
        ({"B": 1, "precision": "fp8"}, "'fp8' is not one of fp32"),
        ({"B": 1, "precision": "amp"}, "on cpu"),
        ({"B": 1, "batch_size": 0}, "batch_size"),
        ({"B": 1, "options": {"layers": 2}}, "no option 'layers'.*nlayers"),
        ({"B": 2, "hyper": {"lr": [1.0]}}, "1 values for 2 models"),
        ({"B": 1, "hyper": {"momentum": [1.0]}}, "no option 'momentum'"),
    ],
)
def test_refuses_bad_settings(arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        BertJob(config(**{"B": 1, **arguments}))
