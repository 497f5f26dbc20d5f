# SPDX-License-Identifier: MIT
"""Attributes that training code sets between two steps, by methods or by hand: as B separate models, and captured."""

import enum
import logging
from typing import NamedTuple

import pytest
import torch

import dnnsuite
from dnnsuite import optim

WAYS = [{"threads": 1}, {"threads": 1, "width": 1}, {"threads": 2, "width": 2}, {"threads": 2, "audit": 1}]
STEPS = 14


class Mode(enum.Enum):
    BEGIN = 1
    END = 2


class Options(NamedTuple):
    activation: str
    scale: float = 1.0


class Table(dict):
    """Dictionary with attributes, as many configurations are; what it has not is a KeyError."""

    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__


class Base(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2).double()
        self.start()


class Switched(Base):
    def start(self):
        self.mode, self.by_mode = Mode.BEGIN, {Mode.BEGIN: 1.0, Mode.END: 0.5}

    def go_on(self, late):
        self.mode = Mode.END if late else Mode.BEGIN

    def forward(self, x):
        y = self.layer(x) * self.by_mode[self.mode]
        return y.tanh() if self.mode is Mode.END else y


class Optional(Base):
    def start(self):
        self.options = Options("tanh")

    def go_on(self, late):
        self.options = self.options._replace(activation="relu" if late else "tanh")

    def forward(self, x):
        return getattr(torch, self.options.activation)(self.layer(x)) * self.options.scale


class Chosen(Base):
    def start(self):
        self.chosen = {("layer", 0)}

    def go_on(self, late):
        self.chosen = {("layer", int(late))}

    def forward(self, x):
        y = self.layer(x)
        return y.tanh() if ("layer", 1) in self.chosen else y


class Configured(Base):
    def start(self):
        self.config = Table(scale=1.0, inner=Table(shift=0.0))

    def go_on(self, late):
        self.config.inner.shift = 0.5 if late else 0.0

    def forward(self, x):
        return self.layer(x) * self.config.scale + self.config.inner.shift


class Bent(torch.nn.Module):
    def forward(self, x):
        return x.tanh()


class Cut(Bent):
    def forward(self, x):
        return 2 * x.relu()


class Reclassed(Base):
    def start(self):
        self.last, self.late = Bent(), False

    def go_on(self, late):
        if late is not self.late:
            self.late, self.last.__class__ = late, Cut if late else Bent

    def forward(self, x):
        return self.last(self.layer(x))


class Logging(Base):
    """Computes something else where it logs."""

    def start(self):
        self.log = logging.getLogger("tests.between_steps")

    def go_on(self, late):
        self.log.setLevel(logging.DEBUG if late else logging.INFO)

    def forward(self, x):
        y = self.layer(x)
        return y * 3 if self.log.isEnabledFor(logging.DEBUG) else y


@pytest.mark.parametrize("ways", WAYS)
@pytest.mark.parametrize("kind", [Switched, Optional, Chosen, Configured, Reclassed, Logging])
def test_what_methods_set_between_steps_is_followed_in_captured_steps(kind, ways):
    torch.manual_seed(0)
    models = [kind() for _ in range(3)]
    array = dnnsuite.fuse(models)
    plain = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    optimizer = optim.SGD(array.parameters(), lr=0.1)

    def loss(array, x):
        return array(x).square().flatten(1).mean(1)

    with dnnsuite.StepRunner(array, optimizer, loss, **ways) as runner:
        for step in range(STEPS):
            x = torch.randn(3, 5, 4, dtype=torch.float64)
            for part in (array, *models):
                part.go_on(late=step % 6 > 2)
            expected = []
            for model, own, part in zip(models, plain, x, strict=True):
                value = model(part).square().mean()
                own.zero_grad()
                value.backward()
                own.step()
                expected.append(value.detach())
            torch.testing.assert_close(runner.step(x).losses(), torch.stack(expected))
        assert not runner.mode.startswith("eager")


class Weighted(Base):
    def start(self):
        self.weights = bytearray(b"\x01\x02")

    def forward(self, x):
        return self.layer(x) * self.weights[1]


def test_the_mode_names_what_is_another_object_in_each_step():
    models = [Weighted() for _ in range(3)]
    array = dnnsuite.fuse(models)
    x = torch.randn(3, 5, 4, dtype=torch.float64)

    def loss(array, x):
        return array(x).flatten(1).mean(1)

    with dnnsuite.StepRunner(array, optim.SGD(array.parameters(), lr=0.0), loss, threads=1) as runner:
        for step in range(16):
            for part in (array, *models):
                part.weights = bytearray([1, step])
            expected = torch.stack([model(own).mean() for model, own in zip(models, x, strict=True)])
            torch.testing.assert_close(runner.step(x).losses(), expected.detach())
        assert "weights, a bytearray, is another one in each step" in runner.mode
