# SPDX-License-Identifier: MIT
"""Trials whose code reads values of their own: the same history to the bit in any company."""

import types

import pytest
import torch

import dnnsuite
from dnnsuite.errors import InvalidArgument
from dnnsuite.tuning.trial import Group, Groups, Trial, values_in


class Chosen(torch.nn.Module):
    """A model whose activation is a text in an object, or a function."""

    def __init__(self, config):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)
        self.settings = types.SimpleNamespace(act=config["act"], lr=config["lr"])

    def forward(self, x):
        act = self.settings.act
        h = self.first(x)
        return self.second(act(h) if callable(act) else getattr(torch, act)(h))


class Counting(torch.nn.Module):
    """A model that comes to differ from others: it keeps a mean of its own outputs, and reads it."""

    def __init__(self, config):
        super().__init__()
        self.layer, self.mean = torch.nn.Linear(4, 2), 0.0

    def forward(self, x):
        y = self.layer(x)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * y.detach().mean().item()
        return y * (2.0 if self.mean > 0.1 else 1.0)


@pytest.mark.parametrize(
    ("kind", "acts"), [(Chosen, ["relu", "tanh"]), (Chosen, [torch.relu, torch.sigmoid]), (Counting, [0, 1])]
)
def test_the_history_is_the_same_in_any_company(task, kind, acts):
    space = {"lr": [0.1, 0.03, 0.01], "act": acts}
    histories = [
        dnnsuite.sweep(
            kind, space if kind is Chosen else [{"lr": lr} for lr in (0.3, 0.1, 0.05)], task.loader(8),
            evaluate=task.valid, epochs=2, out=False, quiet=True, **options,
        ).history
        for options in ({"mode": "serial"}, {"width": 2}, {"width": 6})
    ]  # fmt: skip
    for history in histories[1:]:
        assert history.equals(histories[0])


def test_values_that_may_choose_code():
    one, same = (Chosen({"act": "relu", "lr": lr}) for lr in (0.1, 0.2))
    assert values_in(one) == values_in(same)  # numbers do not keep models apart
    assert values_in(one) != values_in(Chosen({"act": "tanh", "lr": 0.1}))
    function = Chosen({"act": torch.relu, "lr": 0.1})
    assert values_in(function) != values_in(Chosen({"act": torch.tanh, "lr": 0.1}))
    function.settings.itself = function.settings
    assert values_in(function)


def test_a_group_is_parted_twice_at_most():
    groups, model = Groups(), Chosen({"act": "relu", "lr": 0.1})
    found = [groups.of("feed", "shape", 0, model, Trial(number, {}, 0)) for number in (0, 1)]
    assert found[0] == found[1] == Group("feed", "shape", 0)
    for again in (True, False):
        groups.part(found[0])
        assert groups.outdated(found[0])
        found = [groups.of("feed", "shape", 0, model, Trial(number, {}, 0)) for number in (0, 1)]
        assert not groups.outdated(found[0])
        assert (found[0] == found[1]) is again
    assert not groups.outdated(groups.of("feed", "other", 0, model, Trial(0, {}, 0)))


class Repeated(torch.nn.Module):
    def __init__(self, times):
        super().__init__()
        self.layer, self.times = torch.nn.Linear(4, 2), times

    def forward(self, x):
        for _ in range(self.times):
            x = x.tanh()
        return self.layer(x)


def test_a_sweep_says_in_a_line_what_runs_model_by_model_and_lists_all_parts(task, capsys):
    options = {"batch_size": 16, "epochs": 1, "out": False}
    apart = dnnsuite.sweep(lambda c: Repeated(c["n"]), {"n": [1, 2, 3], "lr": [0.1]}, task.train, **options)
    said = [line for line in capsys.readouterr().err.splitlines() if "model by model" in line]
    assert [line.partition(";")[0] for line in said] == [
        "3 trials run Repeated model by model: models differ in times (models 0 and 1)"
    ]
    assert [(cover.layer, cover.how) for cover in apart.coverage()] == [("Repeated", "per model")]
    fused = dnnsuite.sweep(lambda c: torch.nn.Linear(4, c["n"]), {"n": [2, 3], "lr": [0.1, 0.2]}, task.train, **options)
    assert {cover.how for cover in fused.coverage()} == {"fused"}
    assert "model by model" not in capsys.readouterr().err
    with pytest.raises(InvalidArgument, match="no trial in an array"):
        dnnsuite.sweep(small, {"lr": [0.1]}, task.train, mode="concurrent", quiet=True, **options).coverage()


def small(config):
    return torch.nn.Linear(4, 2)


def test_coverage_of_a_sweep_that_had_nothing_left_to_train_is_empty(task, tmp_path):
    options = {"batch_size": 16, "epochs": 1, "out": tmp_path / "out", "quiet": True}
    assert dnnsuite.sweep(small, {"lr": [0.1, 0.2]}, task.train, **options).coverage()
    assert not dnnsuite.sweep(small, {"lr": [0.1, 0.2]}, task.train, **options, resume=True).coverage()
