# SPDX-License-Identifier: MIT
"""Models that go into an array after others of their structure: the array is as if each had been compared with it."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch

import dnnsuite
from dnnsuite import nn, optim

B = 3
Make = Callable[[], torch.nn.Module]


class Scaled(torch.nn.Module):
    """A layer and a number of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.scale


class Tied(torch.nn.Module):
    """Two layers with one weight."""

    def __init__(self, tied: bool = True) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        if tied:
            self.last.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x)))


class Recurrent(torch.nn.Module):
    """Two recurrent layers, which keep lists of their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.nn.LSTM(4, 4, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rows(x.unsqueeze(1))[0].squeeze(1)


def normed(momentum: float | None = 0.1) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4, momentum=momentum))


def attention() -> torch.nn.Module:
    return torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)


MAKES: dict[str, Make] = {
    "linear": lambda: torch.nn.Linear(4, 4),
    "scaled": Scaled,
    "tied": Tied,
    "recurrent": Recurrent,
    "normed": normed,
    "attention": attention,
    "dropped": lambda: torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.0)),
}


def loss(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (model(x) ** 2).mean()


def losses(array: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (array(x) ** 2).flatten(1).mean(1)


def test_each_of_many_models_in_turn_trains_as_it_would_alone() -> None:
    for name, make in MAKES.items():
        torch.manual_seed(0)
        models = [make().double() for _ in range(B)]
        array = dnnsuite.fuse(models)
        own = [torch.optim.Adam(model.parameters(), lr=0.01, eps=1e-3) for model in models]
        optimizer = optim.Adam(array.parameters(), lr=0.01, eps=1e-3)
        with dnnsuite.StepRunner(array, optimizer, losses, threads=1) as runner:
            for number in range(6):
                for _ in range(3):
                    x = torch.randn(5, 4, dtype=torch.float64)
                    runner.step(dnnsuite.stack(x, B)).losses()
                    for model, one in zip(models, own, strict=True):
                        one.zero_grad()
                        loss(model, x).backward()
                        one.step()
                slot = number % B
                models[slot] = make().double()
                own[slot] = torch.optim.Adam(models[slot].parameters(), lr=0.01, eps=1e-3)
                array.replace(slot, models[slot], optimizer)
        for slot, (mine, alone) in enumerate(zip(dnnsuite.unfuse(array), models, strict=True)):
            for key, value in alone.state_dict().items():
                torch.testing.assert_close(mine.state_dict()[key], value, msg=f"{name}, slot {slot}, {key}")


def known(make: Make) -> dnnsuite.Array:
    """An array in which a model was replaced by one like it."""
    array = dnnsuite.fuse([make() for _ in range(B)])
    array.replace(0, make())
    return array


def frozen() -> torch.nn.Module:
    model = Scaled()
    model.inner.bias.requires_grad_(False)
    return model


def hooked() -> torch.nn.Module:
    model = Scaled()
    model.inner.register_forward_hook(lambda module, args, output: output + 1)
    return model


def rescaled(scale: float) -> Make:
    def make() -> torch.nn.Module:
        model = Scaled()
        model.scale = scale
        return model

    return make


def overridden() -> torch.nn.Module:
    model = Scaled()
    inner = model.inner
    inner.forward = lambda x: torch.zeros_like(x)  # type: ignore[method-assign]
    return model


OTHERS: dict[str, tuple[Make, Make]] = {
    "frozen": (Scaled, frozen),
    "hooked": (Scaled, hooked),
    "rescaled": (Scaled, rescaled(3.0)),
    "overridden": (Scaled, overridden),
    "double": (Scaled, lambda: Scaled().double()),
    "untied": (Tied, lambda: Tied(tied=False)),
    "without momentum": (normed, lambda: normed(None)),
    "other momentum": (normed, lambda: normed(0.5)),
    "wider": (MAKES["linear"], lambda: torch.nn.Linear(4, 5)),
    "without bias": (MAKES["linear"], lambda: torch.nn.Linear(4, 4, bias=False)),
    "one more layer": (normed, lambda: torch.nn.Sequential(*normed(), torch.nn.ReLU())),
    "evaluated": (normed, lambda: normed().eval()),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_model_of_another_structure_is_treated_as_the_first_new_one(name: str) -> None:
    """Into an array in which nothing was replaced, the same model goes with the same result or the same error."""
    make, other = OTHERS[name]
    torch.manual_seed(0)
    later = known(make)
    at_once = copy.deepcopy(later)
    model = other()
    said = []
    for array in (later, at_once):
        try:
            array.replace(1, copy.deepcopy(model))
            said.append("")
        except dnnsuite.errors.InvalidArgument as error:
            said.append(str(error))
    assert said[0] == said[1]
    if said[0]:
        return
    x = torch.randn(6, 4)
    for array in (later, at_once):
        assert array.training
    expected, found = at_once(dnnsuite.stack(x, B)), later(dnnsuite.stack(x, B))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found[1], model.train()(x))
    for mine, fresh in zip(later.parameters(), at_once.parameters(), strict=True):
        assert mine.requires_grad == fresh.requires_grad


def test_what_the_array_became_meanwhile_is_compared_again() -> None:
    array = known(Scaled)
    array.scale = 5.0
    array.replace(1, rescaled(2.0)())
    x = torch.randn(6, 4)
    models = dnnsuite.unfuse(array)
    assert [model.scale for model in models] == [5.0, 2.0, 5.0]
    torch.testing.assert_close(array(dnnsuite.stack(x, B)), torch.stack([model(x) for model in models]))


def test_rates_and_momenta_are_each_models_own() -> None:
    def make(rate: float, momentum: float) -> torch.nn.Module:
        parts = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4, momentum=momentum), torch.nn.Dropout(rate)
        return torch.nn.Sequential(*parts)

    array = dnnsuite.fuse([make(0.1, 0.1) for _ in range(B)])
    for slot, (rate, momentum) in enumerate([(0.2, 0.1), (0.0, 0.1), (1.0, 0.4)]):
        array.replace(slot, make(rate, momentum))
    models = dnnsuite.unfuse(array)
    assert [(model[2].p, model[1].momentum) for model in models] == [(0.2, 0.1), (0.0, 0.1), (1.0, 0.4)]
    out = array(dnnsuite.stack(torch.randn(400, 4), B))
    shares = (out == 0).float().flatten(1).mean(1)
    assert 0.1 < shares[0] < 0.3
    assert shares[1] == 0
    assert shares[2] == 1


def test_a_rate_out_of_range_is_refused_and_nothing_changes() -> None:
    def make(rate: float) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(rate))

    array = known(lambda: make(0.5))
    before = {name: value.clone() for name, value in array.state_dict().items()}
    wrong = make(0.5)
    wrong[1].p = 1.5  # type: ignore[union-attr]
    with pytest.raises(dnnsuite.errors.InvalidArgument, match="between 0 and 1"):
        array.replace(1, wrong)
    assert all(torch.equal(value, before[name]) for name, value in array.state_dict().items())


def test_each_new_model_has_a_random_stream_of_its_own() -> None:
    array = known(lambda: torch.nn.Sequential(torch.nn.Identity(), torch.nn.Dropout(0.5)))
    torch.manual_seed(7)
    array.replace(1, torch.nn.Sequential(torch.nn.Identity(), torch.nn.Dropout(0.5)))
    array.replace(2, torch.nn.Sequential(torch.nn.Identity(), torch.nn.Dropout(0.5)))
    out = array(dnnsuite.stack(torch.ones(200), B))
    assert not any(torch.equal(out[a], out[b]) for a, b in ((0, 1), (1, 2), (0, 2)))


def test_the_model_that_went_in_stays_the_users() -> None:
    array = known(Scaled)
    model = Scaled()
    array.replace(1, model)
    with torch.no_grad():
        model.inner.weight.zero_()
    assert array.inner.weight[1].abs().sum() > 0
    with torch.no_grad():
        array.inner.weight.fill_(3.0)
    assert model.inner.weight.abs().sum() == 0


def test_frozen_tensors_that_all_models_share_stay_shared() -> None:
    base = torch.nn.Linear(4, 4).requires_grad_(False)

    def make() -> torch.nn.Module:
        return torch.nn.Sequential(base, torch.nn.Linear(4, 2))

    array = known(make)
    array.replace(1, make())
    assert array.get_submodule("0").weight.stride(0) == 0
    models = dnnsuite.unfuse(array)
    assert models[0].get_submodule("0").weight is models[1].get_submodule("0").weight


def test_making_an_array_leaves_torchs_generator_where_it_was() -> None:
    models = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Conv1d(4, 4, 1)) for _ in range(B)]
    torch.manual_seed(0)
    expected = torch.get_rng_state()
    nn.Linear.from_models([model[0] for model in models])
    assert torch.equal(torch.get_rng_state(), expected)
