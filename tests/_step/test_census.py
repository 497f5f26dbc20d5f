# SPDX-License-Identifier: MIT
"""A census of small models: what a StepRunner says of each (`mode`), and what runs model by model (`coverage`).

`census.json` has what is expected. A model may be less captured than there only for a reason that says so; write the
file anew with `DNNSUITE_WRITE_CENSUS=1 pytest tests/_step/test_census.py`, and read the difference.
"""

import argparse
import collections
import dataclasses
import enum
import functools
import json
import logging
import math
import os
import types
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_map_only

import dnnsuite
from dnnsuite import optim
from fuse_zoo import rows

FILE = Path(__file__).with_name("census.json")
LOG = logging.getLogger("dnnsuite.tests.census")
STEPS, B = 12, 2
SCALES = {"first": 1.0, "others": {"second": 0.5}}


@dataclasses.dataclass
class Config:
    width: int = 8
    scale: float = 0.5
    names: tuple = ("a", "b")
    table: dict = dataclasses.field(default_factory=lambda: {"drop": 0.1, "inner": {"gain": 2.0}})


class Kind(enum.Enum):
    PLAIN = 1


class Net(torch.nn.Module):
    """A small network with something in Python around it; a class below says what."""

    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(6, 8), torch.nn.Linear(8, 3)
        self.set_up()

    def set_up(self):
        pass

    def forward(self, x):
        return self.b(F.relu(self.a(x)))


class Configured(Net):
    def set_up(self):
        self.config = Config()

    def forward(self, x):
        return self.b(F.relu(self.a(x))) * self.config.scale * self.config.table["inner"]["gain"]


class OfNamespace(Net):
    def set_up(self):
        self.args = argparse.Namespace(act="relu", gain=2.0, layers=[1, 2], deep=types.SimpleNamespace(rate=0.1))

    def forward(self, x):
        act = getattr(F, self.args.act)
        return self.b(F.dropout(act(self.a(x)), self.args.deep.rate, self.training)) * self.args.gain


class Registered(Net):
    ACTS: ClassVar = {"relu": F.relu, "tanh": torch.tanh}

    def forward(self, x):
        return self.b(self.ACTS["tanh"](self.a(x)))


class Logging(Net):
    def set_up(self):
        self.logger, self.kind = logging.getLogger("a"), Kind.PLAIN

    def forward(self, x):
        LOG.debug("a batch of %s", x.shape)
        if self.kind is Kind.PLAIN:
            self.logger.debug("plain")
        return super().forward(x)


class Partial(Net):
    def set_up(self):
        self.act = functools.partial(F.leaky_relu, negative_slope=0.2)

    def forward(self, x):
        return self.b(self.act(self.a(x)))


class Counting(Net):
    def set_up(self):
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * min(1.0, self.calls / 1000)


class CountingDeep(Net):
    def set_up(self):
        self.state = types.SimpleNamespace(inner={"calls": 0})

    def forward(self, x):
        self.state.inner["calls"] += 1
        return super().forward(x)


class Layers(Net):
    def set_up(self):
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        h = F.gelu(self.a(x))
        for layer in self.layers:
            h = h + F.gelu(layer(h))
        return self.b(h)


class ByNames(Net):
    def set_up(self):
        for number in range(3):
            self.add_module(f"layer{number}", torch.nn.Linear(8, 8))

    def forward(self, x):
        h = self.a(x)
        for number in range(3):
            h = torch.tanh(getattr(self, f"layer{number}")(h))
        return self.b(h)


class WithArrays(Net):
    def set_up(self):
        self.table, self.seen = np.linspace(0.0, 1.0, 8, dtype=np.float32), collections.deque(maxlen=3)

    def forward(self, x):
        return self.b(F.relu(self.a(x)) * torch.from_numpy(self.table))


class Iterating(Net):
    def forward(self, x):
        device = next(self.parameters()).device
        first, *_ = (layer for layer in self.children())
        scale = functools.reduce(lambda a, b: a * b, iter([1.0, 2.0]))
        return self.b(F.relu(first(x.to(device)))) * scale


class Helping(Net):
    @property
    def gain(self):
        return math.sqrt(self.a.out_features)

    @staticmethod
    def act(x):
        return F.silu(x)

    def forward(self, x):
        return self.b(self.act(self.a(x))) / self.gain


class Keeping(Net):
    """Methods that do not run read files and the clock."""

    def save(self, path):
        with open(path, "w") as text:
            text.write(str(self.begun()))

    def begun(self):
        import time

        return time.time()


class Normed(Net):
    def set_up(self):
        self.norm, self.drop = torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.2)

    def forward(self, x):
        return self.b(self.drop(F.relu(self.norm(self.a(x)))))


class Attends(Net):
    def set_up(self):
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        h = self.a(x)[:, None]
        return self.b(self.attention(h, h, h, need_weights=False)[0][:, 0])


class Recurrent(Net):
    def set_up(self):
        self.cell = torch.nn.GRU(8, 8, batch_first=True)

    def forward(self, x):
        return self.b(self.cell(self.a(x)[:, None])[0][:, 0])


class Remembers(Net):
    """Keeps a mask, made once."""

    def set_up(self):
        self.mask = None

    def forward(self, x):
        if self.mask is None or self.mask.shape[0] != 8:
            self.mask = torch.ones(8)
        return self.b(F.relu(self.a(x)) * self.mask)


class Branches(Net):
    def forward(self, x):
        h = self.a(x)
        if self.training and h.shape[-1] == 8:
            h = h * SCALES["first"]
        return self.b(F.relu(h)) * SCALES["others"]["second"]


class Decides(Net):
    def forward(self, x):
        h = self.a(x)
        return self.b(F.relu(h) if h.mean() > -100 else h)


class Trainer:
    """Holds much that its loss does not read."""

    def __init__(self):
        self.config, self.step, self.best = Config(), 0, math.inf
        self.loader, self.lines, self.log = iter(range(3)), open(__file__), []  # noqa: SIM115

    def loss(self, array, x, y):
        return dnnsuite.nn.functional.cross_entropy(array(x), y) * self.config.scale

    def run(self):
        self.step += next(self.loader)
        return self.lines.readline()


def weighted(array, x, y, weights=(1.0, 0.5)):
    return dnnsuite.nn.functional.cross_entropy(array(x), y) * weights[0] + penalty(array(x))


def penalty(z):
    return SCALES["others"]["second"] * z.square().flatten(1).mean(1)


class WithTeacher:
    def __init__(self):
        self.teacher = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.Dropout(0.5)).eval()

    def __call__(self, array, x, y):
        with torch.no_grad():
            target = self.teacher(x)
        return (array(x) - target).square().flatten(1).mean(1)


def plain_loss(array, x, y):
    return dnnsuite.nn.functional.cross_entropy(array(x), y)


def features():
    return torch.randn(B, 5, 6), torch.randint(3, (B, 5))


def of_row(row):
    def make():
        return row.models(B)

    def batch():
        inputs, target = row.batch()
        return *(torch.stack([t] * B) for t in inputs), torch.stack([target] * B)

    def loss(array, *given):
        out = row.call(array, given[:-1])
        each = [tree_map_only(torch.Tensor, lambda t, index=index: t[index], out) for index in range(len(given[-1]))]
        return torch.stack([row.loss(one, y) for one, y in zip(each, given[-1], strict=True)])

    return make, batch, loss


def made_of(kind):
    def make():
        torch.manual_seed(0)
        return [kind() for _ in range(B)]

    return make


TRAINER = Trainer()
CENSUS = {
    kind.__name__: (made_of(kind), features, plain_loss)
    for kind in (
        Net, Configured, OfNamespace, Registered, Logging, Partial, Counting, CountingDeep, Layers, ByNames, WithArrays,
        Iterating, Helping, Keeping, Normed, Attends, Recurrent, Remembers, Branches, Decides,
    )
} | {
    "a trainer's method": (made_of(Net), features, TRAINER.loss),
    "a trainer in a closure": (made_of(Net), features, lambda array, x, y: TRAINER.loss(array, x, y)),
    "a loss with defaults and a helper": (made_of(Net), features, weighted),
    "a partial loss": (made_of(Net), features, functools.partial(weighted, weights=(0.5, 1.0))),
    "a loss with a teacher": (made_of(Net), features, WithTeacher()),
    "a loss of any names": (
        made_of(Net), features, lambda array, x, y: plain_loss(array, x, y) * getattr(TRAINER.config, "sca" + "le")
    ),
    "dropout of layers": (
        made_of(lambda: torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 3))),
        features,
        plain_loss,
    ),
} | {row.name: of_row(row) for row in (one.values[0] for one in rows()) if not row.package}  # fmt: skip


def found(name):
    make, batch, loss = CENSUS[name]
    array = dnnsuite.fuse(make())
    with dnnsuite.StepRunner(array, optim.SGD(array.parameters(), lr=0.01), loss, threads=1, width=B) as runner:
        for step in range(STEPS):
            torch.manual_seed(step)
            runner.step(*batch()).losses()
        mode = runner.mode
    return {
        "mode": mode,
        "coverage": [[one.name, one.how, one.reason] for one in array.coverage() if one.how != "fused"],
    }


WRITE = bool(os.environ.get("DNNSUITE_WRITE_CENSUS"))


@pytest.mark.parametrize("name", CENSUS)
def test_no_model_is_less_captured_than_it_was(name):
    now = found(name)
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    if WRITE:
        known[name] = now
        FILE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    assert now == known[name]
