# SPDX-License-Identifier: MIT
"""A user's models and a job's as subjects: what is stepped is what it says."""

import pytest
import torch

import tiny_workloads  # registers blobs
from dnnsuite.advisor.measurement import JobSubject, ModelsSubject
from dnnsuite.errors import InvalidArgument
from dnnsuite.jobs import JobConfig

assert tiny_workloads.Right.name == "blobs"


def cross_entropy(model, x, y):
    return torch.nn.functional.cross_entropy(model(x), y)


def test_a_users_models_train_on_copies():
    model = torch.nn.Linear(3, 2)
    before = model.weight.detach().clone()
    batch = torch.randn(5, 3), torch.randint(2, (5,))
    seen = []

    def loss(model, x, y):
        seen.append(tuple(x.shape))
        return cross_entropy(model, x, y)

    subject = ModelsSubject(model, batch, loss, lambda p: torch.optim.Adam(p, lr=0.1))
    for B in (0, 3):
        stepper = subject.stepper(B, 1)
        for _ in range(3):
            stepper.step()
        stepper.close()
    run, copied = subject.plain_step()
    run()
    assert copied.weight.grad is not None
    assert set(seen) == {(5, 3)}  # a loss is written for one model
    assert torch.equal(model.weight, before)
    assert subject.device == "cpu"


@pytest.mark.parametrize(
    ("models", "message"), [([], "got none"), ([3], "got a int"), (torch.nn.ReLU(), "with parameters")]
)
def test_what_is_no_model(models, message):
    with pytest.raises(InvalidArgument, match=message):
        ModelsSubject(models, torch.randn(2, 2), cross_entropy, torch.optim.SGD)


def test_a_job():
    subject = JobSubject("blobs", JobConfig(batch_size=4))
    for B in (0, 2):
        stepper = subject.stepper(B, 1)
        stepper.step()
        stepper.close()
    step, model = subject.plain_step()
    step()
    assert model[0].weight.grad is not None
