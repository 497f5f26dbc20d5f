# SPDX-License-Identifier: MIT
"""What goes into an array's forward and comes out of it, tensors or not."""

import functools
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch.nn.utils import rnn

import dnnsuite
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, check_matches_models, make_models


@dataclass
class Given:
    x: torch.Tensor
    weights: dict[str, torch.Tensor]
    power: int = 2


class TakesDataclass(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 6)

    def forward(self, given):
        return self.inner(given.x) * given.weights["w"][:, None] ** given.power


def test_a_dataclass_of_inputs():
    models = make_models(TakesDataclass, 3)
    x, w = torch.randn(3, 6, 4), torch.rand(3, 6)
    given = Given(x, {"w": w})
    output = dnnsuite.fuse(models)(given)
    assert given.x is x
    for index, model in enumerate(models):
        assert_near(output[index], model(Given(x[index], {"w": w[index]})))


class GivesNamespace(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 6)
        self.name = "logits"

    def forward(self, given):
        x = given.x if isinstance(given, SimpleNamespace) else given
        y = self.inner(x)
        return SimpleNamespace(logits=y if self.name == "logits" else 2 * y, parts=[x.sum()])


@pytest.mark.parametrize("alike", [True, False])
def test_namespaces_of_inputs_and_of_results(alike):
    models = make_models(GivesNamespace, 3)
    if not alike:
        models[1].name = "double"  # its code reads it: models run one by one
    x = torch.randn(3, 5, 4)
    found = dnnsuite.fuse(models)(SimpleNamespace(x=x) if alike else x)
    for index, model in enumerate(models):
        alone = model(x[index])
        assert_near(found.logits[index], alone.logits)
        assert_near(found.parts[0][index], alone.parts[0])


class Policy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 6)

    def forward(self, x):
        y = self.inner(x)
        return torch.distributions.Normal(y, torch.ones(6)), torch.distributions.Categorical(logits=y)


def test_distributions_of_results():
    models = make_models(Policy, 3)
    x, target = torch.randn(3, 5, 4), torch.randn(3, 5, 6)
    normal, categorical = dnnsuite.fuse(models)(x)
    assert normal.batch_shape == (3, 5, 6)
    for index, model in enumerate(models):
        one, other = model(x[index])
        assert_near(normal.log_prob(target)[index], one.log_prob(target[index]))
        assert_near(categorical.entropy()[index], other.entropy())
    assert categorical.sample().shape == (3, 5)


def test_a_tensor_that_left_the_array_meets_no_ordinary_one():
    """It says that it is one model's; with a tensor [B, ...] it would broadcast to nonsense."""
    kept = []
    models = make_models(lambda: torch.nn.Sequential(torch.nn.Linear(4, 3)), 2)
    array = dnnsuite.fuse(models)
    array[0]  # the hooks are those of the array's module
    array.get_submodule("0").register_forward_hook(lambda module, args, output: kept.append(output))
    x = torch.randn(2, 5, 4)
    output = array(x)
    with pytest.raises(InvalidArgument, match=r"`\.value`"):
        kept[0] - output
    torch.testing.assert_close(kept[0].value, output)


class Recomputes(torch.nn.Module):
    def __init__(self, checkpoint):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.register_buffer("shift", torch.randn(4))
        self.checkpoint = checkpoint

    def forward(self, x):
        return self.checkpoint(lambda y: torch.tanh(self.inner(y) * self.inner.bias) + self.shift, x)


def test_a_closure_in_a_checkpoint():
    theirs = functools.partial(torch.utils.checkpoint.checkpoint, use_reentrant=False)
    for checkpoint in (theirs, dnnsuite.nn.checkpoint):
        check_matches_models(make_models(lambda made=checkpoint: Recomputes(made), 3), torch.randn(3, 5, 4))


class RecomputesByHand(Recomputes):
    def unpacked(self, kept):
        return kept + self.shift - self.shift

    def forward(self, x):
        with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept, self.unpacked):
            return self.inner(x).exp()


def test_a_forward_that_runs_again_by_hand_in_a_backward_pass_is_refused():
    """It would see the tensors of all models."""
    array = dnnsuite.fuse(make_models(lambda: RecomputesByHand(None), 3))
    with pytest.raises(InvalidArgument, match=r"use dnnsuite\.nn\.checkpoint"):
        array(torch.randn(3, 5, 4)).sum().backward()


class TakesPacked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.GRU(4, 5, batch_first=True)

    def forward(self, packed):
        output, last = self.inner(packed)
        return output, last * 2


def test_a_packed_sequence_whose_lengths_are_all_models():
    models = make_models(TakesPacked, 3)
    x, lengths = torch.randn(3, 2, 6, 4), torch.tensor([6, 3])
    own = [rnn.pack_padded_sequence(part, lengths, batch_first=True) for part in x]
    given = own[0]._replace(data=torch.stack([one.data for one in own]))
    packed, last = dnnsuite.fuse(models)(given)
    for index, model in enumerate(models):
        expected, its_last = model(own[index])
        assert_near(packed.data[index], expected.data)
        assert_near(last[index], its_last)
    assert torch.equal(packed.batch_sizes, given.batch_sizes)
