# SPDX-License-Identifier: MIT
"""Steps of an array against those of its experiments alone."""

from types import SimpleNamespace

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR

from dnnsuite.errors import InvalidArgument
from dnnsuite.training import ExperimentArray, PerEpoch
from dnnsuite.training.array_stepper import ArrayStepper
from dnnsuite.training.loading import Share
from dnnsuite.training.processes import Processes
from dnnsuite.training.stepper import Phases, Stepper
from tiny_arrays import array, members

SHARE = Share(0, list(range(8)), 8, 8)


def batch(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(8, 8, generator=generator, dtype=torch.float64), torch.arange(8) % 4


def steps(stepper, batches, count=5):
    """Losses, counts and learning rates of some steps in two epochs, and a validation."""
    found = []
    for i in range(count):
        if i % 3 == 0:
            stepper.begin_epoch(i // 3)
        stepper.begin_step(i)
        results = stepper.train(*stepper.place(batches), SHARE, Phases(0))
        found.append([*results(), torch.tensor(stepper.learning_rates())])
        if i % 3 == 2:
            stepper.end_epoch(i // 3, [1.0] * len(stepper.numbers))
    stepper.model.eval()
    found.append(list(stepper.validate(*stepper.place(batches))()))
    stepper.model.train()
    stepper.close()
    return found


def cosine(optimizer, steps):
    return PerEpoch(CosineAnnealingLR(optimizer, 4))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.8, 0.9)), "schedule": cosine},
        {"loss": lambda outputs, labels: torch.nn.functional.nll_loss(outputs.log_softmax(1), labels)},
    ],
)
def test_each_model_steps_as_alone(changes):
    own = members(**changes)
    batches = {number: batch(number // 2) for number in range(3)}
    batches[1] = batches[0]  # shared
    together = steps(ArrayStepper(ExperimentArray(own), Processes("cpu")), batches)
    for number, each in enumerate(own):
        alone = steps(Stepper(each, Processes("cpu")), {0: batches[number]})
        for ours, theirs in zip(together, alone, strict=True):
            for found, expected in zip(ours, theirs, strict=True):
                torch.testing.assert_close(found[number].view_as(expected), expected)


def test_a_model_that_leaves_changes_no_other():
    whole, cut = (ArrayStepper(array(), Processes("cpu")) for _ in range(2))
    batches = {number: batch() for number in range(3)}
    cut.drop([1])
    cut.drop([])
    assert cut.numbers == [0, 2]
    ours, theirs = steps(cut, batches), steps(whole, batches)
    for found, expected in zip(ours, theirs, strict=True):
        for mine, all_three in zip(found, expected, strict=True):
            assert torch.equal(mine, all_three[[0, 2]])


def test_one_that_is_not_finite_is_seen():
    stepper = ArrayStepper(array(), Processes("cpu"))
    with torch.no_grad():
        next(stepper.model.parameters())[1].view(-1)[3] = torch.inf
    assert stepper.finite() == [True, False, True]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_low_precision_learns_and_each_model_has_its_scaler(precision):
    from tiny_training import net

    made = ExperimentArray(members(model=net, precision=precision))
    stepper = ArrayStepper(made, Processes("cpu"))
    inputs, labels = batch()
    batches = {number: (inputs.float(), labels) for number in range(3)}
    before = [p.clone() for p in stepper.model.parameters()]
    found = steps(stepper, batches)
    assert found[-1][0].shape == (3,)
    assert any(not torch.equal(b, p) for b, p in zip(before, stepper.model.parameters(), strict=True))
    alone = Stepper(made.experiments[1], Processes("cpu"))
    assert stepper.model_state(1)["scaler"].keys() == alone.scaler.state_dict().keys()
    alone.load(stepper.model_state(1))
    assert list(alone.model.state_dict()) == list(stepper.model_state(1)["model"])


def test_an_array_is_of_one_process():
    of_two = SimpleNamespace(world_size=2, device=torch.device("cpu"))
    with pytest.raises(InvalidArgument, match="trains in one process: start it without torchrun"):
        ArrayStepper(array(), of_two)
