# SPDX-License-Identifier: MIT
"""Parts that a user wants to run model by model: chosen by name or predicate, right, and as good in all else."""

import copy

import pytest
import torch

import dnnsuite
from dnnsuite._fuse.fusing import chosen_parts
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, make_models


class Residual(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(width, width, 3, padding=1), torch.nn.BatchNorm2d(width)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x))) + x


class Net(torch.nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.stem = torch.nn.Sequential(torch.nn.Conv2d(3, width, 3), torch.nn.ReLU())
        self.blocks = torch.nn.ModuleList([Residual(width) for _ in range(2)])
        self.norm = torch.nn.LayerNorm(width)
        self.fc = torch.nn.Linear(width, 5)

    def forward(self, x):
        h = self.stem(x)
        for block in self.blocks:
            h = block(h)
        return self.fc(self.norm(h.mean((2, 3))))


def per_model(array):
    return [cover.name for cover in array.coverage() if cover.how == "per model"]


def loss_of(part, x, y):
    return dnnsuite.nn.functional.cross_entropy(part(x), y)


def stepper(array, optimizer, runner):
    """A training step by a StepRunner, or by hand: (batch) → losses."""
    if runner:
        step_runner = dnnsuite.StepRunner(array, optimizer, loss_of, threads=1)
        return lambda *batch: step_runner.step(*batch).losses()

    def by_hand(*batch):
        optimizer.zero_grad()
        losses = loss_of(array, *batch)
        losses.sum().backward()
        optimizer.step()
        return losses

    return by_hand


@pytest.mark.parametrize(
    ("unfused", "names", "runner"),
    [
        ((), [], False),
        ("fc", ["fc"], True),
        (["blocks.1", "norm"], ["blocks.1", "norm"], False),
        ("blocks", ["blocks.0", "blocks.1"], True),  # a list of modules is never called itself
        ("blocks.*", ["blocks.0", "blocks.1"], False),  # of nested ones the outermost
        ("stem", ["stem"], False),
        ("*", [""], True),
        (lambda name, module: isinstance(module, torch.nn.Conv2d), ["stem.0", "blocks.0.conv", "blocks.1.conv"], True),
        (lambda name, module: False, [], False),
    ],
)
def test_trains_as_separate_models(unfused, names, runner):
    models = make_models(Net, 3, torch.float64)
    array = dnnsuite.fuse(models, unfused=unfused)
    fused = dnnsuite.fuse(models)
    assert sorted(per_model(array)) == sorted(names)
    assert all(c.reason == "requested" for c in array.coverage() if c.how == "per model")
    assert list(array.state_dict()) == list(fused.state_dict())
    rates = [0.1, 0.03, 0.01]
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=rates, momentum=0.9)
    step = stepper(array, optimizer, runner)
    alone = [copy.deepcopy(model) for model in models]
    own = [torch.optim.SGD(m.parameters(), lr=r, momentum=0.9) for m, r in zip(alone, rates, strict=True)]
    for number in range(3):
        x, y = torch.randn(4, 3, 8, 8, dtype=torch.float64), torch.randint(5, (4,))
        shared = dnnsuite.stack(x, 3), dnnsuite.stack(y, 3)
        losses = step(*shared)
        for index, (model, one) in enumerate(zip(alone, own, strict=True)):
            one.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            one.step()
            assert_near(torch.as_tensor(losses[index]).double(), loss.detach(), f"step {number}, model {index}")
    for found, model in zip(dnnsuite.unfuse(array), alone, strict=True):
        assert type(found.fc) is torch.nn.Linear
        assert type(found.stem) is torch.nn.Sequential
        for (name, value), (_, expected) in zip(found.state_dict().items(), model.state_dict().items(), strict=True):
            assert_near(value.double(), expected.double(), name)


def test_edits_keep_the_choice():
    models = make_models(Net, 4, torch.float64)
    array = dnnsuite.fuse(models[:3], unfused=["blocks.0", "fc"])
    optimizer = dnnsuite.optim.Adam(array.parameters(), lr=[0.1, 0.2, 0.3])
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    array(dnnsuite.stack(x, 3)).sum().backward()
    array.drop(1, optimizer)
    array.append(models[3], optimizer, lr=0.4)
    array.clone(2, optimizer, into=0)
    assert per_model(array) == ["blocks.0", "fc"]
    array.eval()
    output = array(dnnsuite.stack(x, 3))
    with torch.no_grad():
        models[2](x)  # its running statistics moved once in the array
    expected = [models[3].eval()(x), models[2].eval()(x), models[3](x)]
    for index in (0, 2):
        assert_near(output[index], expected[index])
    models[0].eval()
    array.load_state_dict(dnnsuite.fuse([copy.deepcopy(models[0]) for _ in range(3)]).state_dict())
    assert_near(array(dnnsuite.stack(x, 3))[1], models[0](x))


def test_a_layer_with_parts_is_opened():
    def make():
        return torch.nn.TransformerEncoder(
            torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False
        )

    models = make_models(make, 2, torch.float64)
    array = dnnsuite.fuse(models, unfused="layers.1.linear1")
    assert per_model(array) == ["layers.1.linear1"]
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    for index, model in enumerate(models):
        assert_near(array(dnnsuite.stack(x, 2))[index], model(x))


def test_dropout_that_runs_model_by_model_draws_for_each():
    models = make_models(lambda: torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Dropout(0.5)), 2)
    models[1].load_state_dict(models[0].state_dict())
    array = dnnsuite.fuse(models, unfused="1", seeds=[5, 6])
    same = dnnsuite.fuse(models[:1], unfused="1", seeds=[5])
    x = torch.randn(8, 4)
    output, alone = array(dnnsuite.stack(x, 2)), same(dnnsuite.stack(x, 1))
    assert not torch.equal(output[0] == 0, output[1] == 0)
    assert torch.equal(output[0] == 0, alone[0] == 0)  # whatever other models there are


def test_a_name_that_matches_nothing():
    models = make_models(Net, 2)
    before = [dict(model.state_dict()) for model in models]
    with pytest.raises(InvalidArgument, match=r"unfused='block\.0' matches no module .* nearest are blocks\.0"):
        dnnsuite.fuse(models, unfused=["fc", "block.0"])
    with pytest.raises(InvalidArgument, match="got a int"):
        dnnsuite.fuse(models, unfused=[3])
    with pytest.raises(InvalidArgument, match="the model has no parts"):
        chosen_parts(torch.nn.ReLU(), "fc")
    assert all(torch.equal(b[n], m.state_dict()[n]) for b, m in zip(before, models, strict=True) for n in b)
