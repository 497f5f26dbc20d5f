# SPDX-License-Identifier: MIT
import copy

import pytest
import torch

import dnnsuite
from dnnsuite._step.capture.guards import module_facts
from dnnsuite.nn import array

ERA = object()


class Own(torch.nn.Module):
    def __init__(self, **attributes):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        vars(self).update(attributes)

    def forward(self, x):
        return self.layer(x)


def facts(*models, era=ERA):
    return module_facts(dnnsuite.fuse(models), era)


def test_the_number_of_models_is_no_fact():
    assert facts(Own(), Own()) == facts(Own(), Own(), Own())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"k": 1}, {"k": 2}),
        ({"k": 1}, {"k": True}),
        ({"k": [1, [2, 3]]}, {"k": [1, [2, 4]]}),
        ({"k": list(range(99))}, {"k": [*range(98), 0]}),
        ({"k": {"a": 1}}, {"k": {"a": 2}}),
        ({"k": frozenset("ab")}, {"k": frozenset("ac")}),
        ({"k": torch.relu}, {"k": torch.sigmoid}),
        ({}, {"k": None}),
    ],
)
def test_python_values_of_modules_are(one, other):
    assert facts(Own(**one), Own(**one)) == facts(Own(**copy.copy(one)), Own(**one))
    assert facts(Own(**one), Own(**one)) != facts(Own(**other), Own(**other))


def test_what_cannot_be_compared_is_the_same_within_an_era_only():
    made = dnnsuite.fuse([Own(k=torch.zeros(2)), Own(k=torch.zeros(2))])
    assert module_facts(made, ERA) == module_facts(copy.deepcopy(made), ERA)
    assert module_facts(made, ERA) != module_facts(made, object())


def test_training_is():
    made = dnnsuite.fuse([Own(), Own()])
    before = module_facts(made, ERA)
    made.eval()
    assert module_facts(made, ERA) != before


def test_rates_of_dropout_are_no_facts_but_whether_there_are_any():
    def of(rates):
        return module_facts(array(len(rates)).Dropout(rates), ERA)

    assert of([0.1, 0.2]) == of([0.3])
    assert of([0.0, 0.0]) != of([0.0, 0.1])


def test_momenta_of_norms_are():
    def of(momenta):
        return module_facts(array(len(momenta)).BatchNorm1d(3, momentum=momenta), ERA)

    assert of([0.1, 0.1]) == of([0.1])
    assert of([0.1, 0.2]) != of([0.1, 0.1])


class Counting(torch.nn.Module):
    """User's code that draws numbers, makes tensors and writes into them."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm, self.drop = (torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2), torch.nn.Dropout(0.5))

    def forward(self, x):
        total = torch.zeros(2)
        total.add_(self.norm(self.layer(x)).sum(0))
        return self.drop(x) + total + torch.rand(2)


def layers():
    return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh(), torch.nn.AlphaDropout(0.1))


@pytest.mark.parametrize("make", [Counting, Own, layers])
def test_what_an_array_notes_for_itself_in_its_steps_is_no_fact(make):
    made = dnnsuite.fuse([make(), make()])
    before = module_facts(made, ERA)
    for _ in range(12):  # beyond the steps that are timed for a choice of way
        made(torch.randn(2, 5, 2)).sum().backward()
    made.eval()(torch.randn(2, 5, 2))
    with torch.no_grad():
        made.train()(torch.randn(2, 5, 2))
    assert module_facts(made, ERA) == before
    assert module_facts(made, object()) == before
