# SPDX-License-Identifier: MIT
"""ResNet-18 with 0 to 10 of its units left unfused computes the same."""

import copy

import pytest
import torch

import dnnsuite
from dnnsuite.data import import_torchvision
from helpers import assert_near, make_models

STEM = ["conv1", "bn1", "relu", "maxpool"]
UNITS = [*([f"layer{a}.{b}"] for a in (1, 2, 3, 4) for b in (0, 1)), ["fc"], STEM]
RATES = [0.5, 0.2, 0.05]


def narrow_resnet():
    """Make torchvision's ResNet-18, 4 to 32 channels wide in place of 64 to 512."""
    torchvision = import_torchvision()
    blocks = torchvision.models.resnet
    wide = blocks.ResNet(blocks.BasicBlock, [1, 1, 1, 1], num_classes=10)
    wide.conv1, wide.bn1 = torch.nn.Conv2d(3, 4, 3, bias=False), torch.nn.BatchNorm2d(4)
    wide.inplanes = 4
    for place, width in enumerate((4, 8, 16, 32)):
        setattr(wide, f"layer{place + 1}", wide._make_layer(blocks.BasicBlock, width, 2, 1 + (place > 0)))
    wide.fc = torch.nn.Linear(32, 10)
    return wide


@pytest.fixture(scope="module")
def runs():
    """The models, the batches, and the losses and models after training each alone."""
    models = make_models(narrow_resnet, 3, torch.float64)
    batches = [(torch.randn(4, 3, 16, 16, dtype=torch.float64), torch.randint(10, (4,))) for _ in range(3)]
    alone = [copy.deepcopy(model) for model in models]
    losses = []
    for model, rate in zip(alone, RATES, strict=True):
        optimizer, own = torch.optim.Adadelta(model.parameters(), lr=rate), []
        for x, y in batches:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            own.append(loss.detach())
        losses.append(torch.stack(own))
    return models, batches, torch.stack(losses, 1), alone


@pytest.mark.parametrize("n", [0, 1, 6, 10])
def test_units_left_unfused(runs, n):
    models, batches, expected, alone = runs
    array = dnnsuite.fuse(models, unfused=[name for unit in UNITS[:n] for name in unit])
    asked = {cover.name for cover in array.coverage() if cover.how == "per model"}
    assert asked == {name for unit in UNITS[:n] for name in unit}
    optimizer = dnnsuite.optim.Adadelta(array.parameters(), lr=RATES)
    for step, (x, y) in enumerate(batches):
        optimizer.zero_grad()
        losses = dnnsuite.nn.functional.cross_entropy(array(dnnsuite.stack(x, 3)), dnnsuite.stack(y, 3))
        losses.sum().backward()
        optimizer.step()
        assert_near(losses.detach(), expected[step], f"step {step}")
    start = [model.layer2[0].downsample[0].weight.detach() for model in models]
    moved = array.state_dict()["layer2.0.downsample.0.weight"]
    assert_near(moved, torch.stack([model.layer2[0].downsample[0].weight.detach() for model in alone]))
    assert len({float((own - was).abs().sum()) for own, was in zip(moved, start, strict=True)}) == 3
