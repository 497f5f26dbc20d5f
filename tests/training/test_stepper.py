# SPDX-License-Identifier: MIT
import pytest
import torch
from torch.nn.functional import cross_entropy

from dnnsuite.training.loading import Share
from dnnsuite.training.processes import Processes
from dnnsuite.training.stepper import Phases, Stepper
from tiny_training import experiment, net

SHARE = Share(0, list(range(8)), 8, 8)


def batch():
    generator = torch.Generator().manual_seed(5)
    return torch.randn(8, 8, generator=generator), torch.arange(8) % 4


def test_steps_are_those_of_a_loop_by_hand():
    stepper = Stepper(experiment(), Processes("cpu"))
    torch.manual_seed(0)
    model = net()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(0)
    expected = []
    for _ in range(3):
        sgd.zero_grad()
        loss = cross_entropy(model(batch()[0]), batch()[1])
        loss.backward()
        sgd.step()
        expected.append(loss.item())
    torch.manual_seed(0)
    found = [stepper.train(*stepper.place({0: batch()}), SHARE, Phases(0))()[0].item() for _ in range(3)]
    assert found == expected
    for ours, theirs in zip(stepper.model.parameters(), model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_validation_is_in_the_precision_and_format_of_training(precision):
    seen = []

    class Net(torch.nn.Conv2d):
        def forward(self, x):
            y = super().forward(x)
            seen.append((y.dtype, x.is_contiguous(memory_format=torch.channels_last)))
            return y.mean((2, 3))

    made = experiment(model=lambda: Net(3, 4, 3), precision=precision, channels_last=True)
    stepper = Stepper(made, Processes("cpu"))
    inputs, labels = stepper.place({0: (torch.randn(8, 3, 6, 6), torch.arange(8) % 4)})
    stepper.train(inputs, labels, SHARE, Phases(0))
    stepper.validate(inputs, labels)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float16
    assert seen == [(dtype, True)] * 2
    assert stepper.scaler.is_enabled() == (precision == "fp16")


def test_names_are_the_users_and_infinite_parameters_are_seen():
    stepper = Stepper(experiment(), Processes("cpu"))
    assert list(stepper.state()["model"]) == list(net().state_dict())
    assert stepper.finite() == [True]
    with torch.no_grad():
        stepper.model[0].weight[0, 0] = torch.inf
    assert stepper.finite() == [False]
