# SPDX-License-Identifier: MIT
"""An array's `forward` shows the arguments of its models', as transformers' Trainer asks for them."""

import copy
import inspect
import pickle

import torch

import dnnsuite
from helpers import make_models


class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(3, 2)

    def forward(self, input_ids, attention_mask=None, *, labels=None):
        return self.head(input_ids)


def test_the_models_arguments_are_shown():
    array = dnnsuite.fuse(make_models(Tagger, 2))
    x = torch.randn(2, 4, 3)
    names = ["input_ids", "attention_mask", "labels"]
    for one in (array, copy.deepcopy(array), pickle.loads(pickle.dumps(array)), array.narrow(0, 2)):
        assert list(inspect.signature(one.forward).parameters) == names
        assert torch.equal(one.forward(input_ids=x, labels=None), array(x))
    assert array.forward.__self__ is array
    assert list(inspect.signature(type(array).forward).parameters) == ["self", "args", "kwargs"]


def test_a_forward_that_is_replaced_is_shown():
    def models():
        for one in make_models(Tagger, 2):
            one.forward = lambda x, scale=2.0, own=one: own.head(x) * scale
            yield one

    array = dnnsuite.fuse(list(models()))
    assert list(inspect.signature(array.forward).parameters) == ["x", "scale", "own"]
    array.forward = lambda y: y
    assert list(inspect.signature(array.forward).parameters) == ["y"]
