# SPDX-License-Identifier: MIT
"""A value that a step reads changes between two steps: the runner's steps are those of separate models, or `mode` says
why it is not captured. Every place that can hold a value, by every kind of value, by ways of running."""

import argparse
import array
import cmath
import collections
import contextvars
import ctypes
import dataclasses
import datetime
import functools
import itertools
import math
import os
import pathlib
import random
import tempfile
import time
import types
import weakref
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite.errors import InvalidArgument

BEFORE, AFTER, B = 4, 4, 2


@dataclasses.dataclass
class Record:
    value: float = 1.0


class Slotted:
    __slots__ = ("__weakref__", "value")

    def __init__(self):
        self.value = 1.0


class Indirect:
    """Answers by `__getattr__`, as configurations of packages do."""

    def __init__(self):
        self.__dict__["_content"] = {"value": 1.0}

    def __getattr__(self, name):
        if name in self.__dict__.get("_content", ()):
            return self.__dict__["_content"][name]
        raise AttributeError(name)


class Computed:
    def __init__(self):
        self._half = 0.5

    @property
    def value(self):
        return 2 * self._half


class OfItsClass:
    value = 1.0


class Given:
    """Descriptor that keeps its value in the object, under a name of its own."""

    def __get__(self, holder, kind=None):
        return vars(holder).get("_given", 1.0)

    def __set__(self, holder, value):
        vars(holder)["_given"] = value


class Described:
    value = Given()


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: float = 1.0


class Named(NamedTuple):
    value: float


class Speaker:
    def __init__(self):
        self.volume = 1.0

    def say(self):
        return self.volume


def noted(holder):
    holder.value = 1.0
    return holder


def with_a_base():
    return type("Own", (type("Base", (), {"value": 1.0}),), {})()


def give_base(value):
    type(value).__bases__ = (type("Other", (), {"value": 10.0}),)
    return value


def give_class(value):
    value.__class__ = type("Other", (), {"value": 10.0})
    return value


def one():
    return types.FunctionType((lambda: 1.0).__code__, globals())


def give_code(value):
    value.__code__ = (lambda: 10.0).__code__
    return value


def spoken_louder(value):
    value.__self__.volume = 10.0
    return value


@dataclasses.dataclass(frozen=True)
class Kind:
    """Kind of value: how it is made, how code reads a number of it, and how that becomes another one.

    `change` returns what takes the place of the value: itself, where it is changed in place.
    """

    make: object
    read: object
    change: object


def held_in(value, act):
    act(value)
    return value


def attribute(value):
    return value.value


def set_value(value):
    value.value = 10.0
    return value


def first(value):
    return float(value[0])


def set_first(value):
    value[0] = 10.0
    return value


def alias(number):
    return number * 1.0


def variable():
    return contextvars.ContextVar("scale", default=1.0)


def set_variable(value):
    value.set(10.0)
    return value


def set_deep(value):
    value["b"]["c"] = 10.0
    return value


def set_key(value):
    value["value"] = 10.0
    return value


def length(value):
    return 1.0 * len(value)


def append(value):
    value.append(10.0)
    return value


def set_class_value(value):
    type(value).value = 10.0
    return value


def set_to(number):
    return lambda value: held_in(value, lambda value: value.__setitem__(0, number))


def sign(value):
    return 1.0 if value[0] < 0 else 10.0


def digits(value):
    return 10.0 ** (len(value.as_tuple().digits) - 2)


EAST = datetime.timezone(datetime.timedelta(hours=1))


def noon(minute):
    return datetime.datetime(2025, 1, 1, 12, minute, tzinfo=datetime.timezone.utc)


class Single(dict):
    def __eq__(self, other):
        return self is other

    __hash__ = object.__hash__


@dataclasses.dataclass
class Noted:
    note: float = dataclasses.field(compare=False)


class Marked(np.ndarray):
    value = 1.0


class Quiet(list):
    def __len__(self):
        return 1


class Loud(list):
    def __len__(self):
        return 10


class MarkedBytes(bytearray):
    value = 1.0


class Files:
    folder = pathlib.Path(tempfile.mkdtemp())

    @classmethod
    def make(cls):
        path = cls.folder / f"scale{len(list(cls.folder.iterdir()))}"
        path.write_text("1.0")
        return path

    @staticmethod
    def change(path):
        path.write_text("10.0")
        return path


def read_file(path):
    return float(path.read_text())


def read_environment(name):
    return float(os.environ.get(name, "1.0"))


def set_environment(name):
    os.environ[name] = "10.0"
    return name


class WeaklyHeld:
    def __init__(self):
        self.target = Record()
        self.weak = weakref.ref(self.target)


def read_weakly(value):
    return value.weak().value


def change_weakly(value):
    value.target.value = 10.0
    return value


def late_number(generator):
    return next(generator)


def coin(generator):
    return 10.0 if generator.random() < 0.3 else 1.0


def global_coin(_):
    return 10.0 if random.random() < 0.3 else 1.0


def numpy_coin(_):
    return 10.0 if np.random.rand() < 0.3 else 1.0


def clock(start):
    return 10.0 if time.perf_counter() > start[0] else 1.0


def stop_clock(start):
    start[0] = time.perf_counter() - 1.0
    return start


def warm_up():
    return (1.0 if number < BEFORE else 10.0 for number in itertools.count())


KINDS = {
    "int": Kind(lambda: 1, alias, lambda v: 10),
    "float": Kind(lambda: 1.0, alias, lambda v: 10.0),
    "bool": Kind(lambda: False, lambda v: 10.0 if v else 1.0, lambda v: True),
    "str": Kind(lambda: "a", lambda v: {"a": 1.0, "b": 10.0}[v], lambda v: "b"),
    "list": Kind(lambda: [1.0], first, set_first),
    "list, longer": Kind(lambda: [1.0], length, append),
    "dict of 3": Kind(lambda: {"a": 1, "b": {"c": 1.0}, "d": 2}, lambda v: v["b"]["c"], set_deep),
    "dict of 20": Kind(lambda: {f"k{i}": i for i in range(20)} | {"b": {"c": 1.0}}, lambda v: v["b"]["c"], set_deep),
    "set": Kind(lambda: {1}, length, lambda v: held_in(v, lambda v: v.update(range(10)))),
    "namespace": Kind(lambda: argparse.Namespace(value=1.0), attribute, set_value),
    "dataclass": Kind(Record, attribute, set_value),
    "slots": Kind(Slotted, attribute, set_value),
    "property": Kind(Computed, attribute, lambda v: held_in(v, lambda v: setattr(v, "_half", 5.0))),
    "__getattr__": Kind(Indirect, attribute, lambda v: held_in(v, lambda v: v._content.update(value=10.0))),
    "class attribute": Kind(lambda: type("Own", (OfItsClass,), {"value": 1.0})(), attribute, set_class_value),
    "deque": Kind(lambda: collections.deque([1.0]), first, set_first),
    "UserDict": Kind(lambda: collections.UserDict(value=1.0), lambda v: v["value"], set_key),
    "ContextVar": Kind(variable, lambda v: v.get(), set_variable),
    "ctypes": Kind(lambda: ctypes.c_double(1.0), attribute, set_value),
    "array": Kind(lambda: np.ones(3), first, set_first),
    "array of objects": Kind(lambda: np.array([1.0, "a"], dtype=object), first, set_first),
    "bytearray": Kind(lambda: bytearray(b"\x01"), first, lambda v: held_in(v, lambda v: v.__setitem__(0, 10))),
    "weak reference": Kind(WeaklyHeld, read_weakly, change_weakly),
    "range": Kind(lambda: range(1), lambda v: 1.0 * len(v), lambda v: range(10)),
    "Counter": Kind(
        lambda: collections.Counter(a=1), lambda v: v["a"], lambda v: held_in(v, lambda v: v.update("a" * 9))
    ),
    "Counter, another key": Kind(
        lambda: collections.Counter(a=1), lambda v: 1 + v["b"], lambda v: held_in(v, lambda v: v.update("b" * 9))
    ),
    "array.array": Kind(lambda: array.array("d", [1.0]), first, set_first),
    "array.array, longer": Kind(lambda: array.array("d", [1.0]), length, append),
    "array.array of another type": Kind(lambda: array.array("b", [-1]), sign, lambda v: array.array("B", [255])),
    "bytearray for an array.array": Kind(lambda: array.array("b", [-1]), sign, lambda v: bytearray(b"\xff")),
    "Decimal": Kind(lambda: Decimal("1.0"), float, lambda v: Decimal("10")),
    "digits of a Decimal": Kind(lambda: Decimal("1.0"), digits, lambda v: Decimal("1.00")),
    "digits in a list": Kind(lambda: [Decimal("1.0")], lambda v: digits(v[0]), set_to(Decimal("1.00"))),
    "digits in a Counter": Kind(
        lambda: collections.Counter({0: Decimal("1.0")}), lambda v: digits(v[0]), set_to(Decimal("1.00"))
    ),
    "digits in a key": Kind(
        lambda: {Decimal("1.0"): 1.0},
        lambda v: digits(*v),
        lambda v: held_in(v, lambda v: v.update({Decimal("1.00"): v.popitem()[1]})),
    ),
    "digits in a set": Kind(
        lambda: {Decimal("1.0")}, lambda v: digits(*v), lambda v: held_in(v, lambda v: v.add(v.pop() * Decimal("1.0")))
    ),
    "sign of a Decimal zero": Kind(
        lambda: Decimal("0"), lambda v: 10.0 if v.is_signed() else 1.0, lambda v: Decimal("-0")
    ),
    "sign of a complex zero": Kind(
        lambda: [complex(-1, 0.0)], lambda v: 10.0 if cmath.phase(v[0]) < 0 else 1.0, set_to(complex(-1, -0.0))
    ),
    "sign of NumPy's zero": Kind(
        lambda: [np.float64(0.0)], lambda v: 10.0 if np.signbit(v[0]) else 1.0, set_to(np.float64(-0.0))
    ),
    "hour of a moment": Kind(lambda: [noon(0)], lambda v: 10.0 ** (v[0].hour - 12), set_to(noon(0).astimezone(EAST))),
    "fold of a time": Kind(lambda: noon(0), lambda v: 10.0**v.fold, lambda v: v.replace(fold=1)),
    "stop of a range": Kind(lambda: range(0, 3, 2), lambda v: 10.0 ** (v.stop - 3), lambda v: range(0, 4, 2)),
    "dictionary that equals itself alone": Kind(lambda: Single(value=1.0), lambda v: v["value"], set_key),
    "list of another class": Kind(lambda: Quiet([1.0]), length, Loud),
    "OrderedDict for a Counter": Kind(
        lambda: collections.Counter(a=1), lambda v: 1.0 if hasattr(v, "total") else 10.0, collections.OrderedDict
    ),
    "tuple for a list": Kind(lambda: [1.0], lambda v: 10.0 if isinstance(v, tuple) else 1.0, tuple),
    "frozenset for a set": Kind(lambda: {1}, lambda v: 10.0 if isinstance(v, frozenset) else 1.0, frozenset),
    "fields of a NumPy array": Kind(
        lambda: np.array([(-1,)], [("a", "i1")]),
        lambda v: sign(v["a"]),
        lambda v: np.array([(255,)], [("a", "u1")]),
    ),
    "equal error": Kind(
        lambda: ValueError(1),
        lambda v: 10.0 if v.args[0] is True else 1.0,
        lambda v: held_in(v, lambda v: setattr(v, "args", (True,))),
    ),
    "equal objects": Kind(lambda: [Noted(1.0)], lambda v: v[0].note, set_to(Noted(10.0))),
    "attribute of a NumPy array": Kind(lambda: np.zeros(2).view(Marked), attribute, set_value),
    "attribute of a bytearray": Kind(lambda: MarkedBytes(2), attribute, set_value),
    "type of a number": Kind(lambda: [1], lambda v: 10.0 if v[0] is True else 1.0, lambda v: [True]),
    "sign of a zero": Kind(
        lambda: {"z": 0.0},
        lambda v: 10.0 if math.copysign(1, v["z"]) < 0 else 1.0,
        lambda v: held_in(v, lambda v: v.update(z=-0.0)),
    ),
    "attribute of a class that comes late": Kind(
        lambda: type("Own", (OfItsClass,), {})(),
        lambda v: getattr(v, "late", 1.0),
        lambda v: held_in(v, lambda v: setattr(type(v), "late", 10.0)),
    ),
    "frozen dataclass": Kind(Frozen, attribute, lambda v: held_in(v, lambda v: object.__setattr__(v, "value", 10.0))),
    "named tuple": Kind(lambda: Named(1.0), attribute, lambda v: v._replace(value=10.0)),
    "descriptor": Kind(Described, attribute, set_value),
    "class of an object": Kind(lambda: type("Own", (), {"value": 1.0})(), attribute, give_class),
    "bases of a class": Kind(with_a_base, attribute, give_base),
    "attribute of a function": Kind(lambda: noted(one()), attribute, set_value),
    "attribute of a tensor": Kind(lambda: noted(torch.zeros(1)), attribute, set_value),
    "code of a function": Kind(one, lambda v: v(), give_code),
    "bound method": Kind(lambda: Speaker().say, lambda v: v(), spoken_louder),
    "order of a dictionary": Kind(
        lambda: {"a": 1.0, "b": 10.0},
        lambda v: next(iter(v.values())),
        lambda v: held_in(v, lambda v: v.update(a=v.pop("a"))),
    ),
    "singledispatch": Kind(
        lambda: functools.singledispatch(lambda kind: 1.0),
        lambda v: v(3),
        lambda v: held_in(v, lambda v: v.register(int, lambda kind: 10.0)),
    ),
    "error": Kind(
        lambda: ValueError(1.0), lambda v: v.args[0], lambda v: held_in(v, lambda v: setattr(v, "args", (10.0,)))
    ),
    "generator": Kind(warm_up, late_number, lambda v: v),
    "iterator": Kind(lambda: iter([1.0] * BEFORE + [10.0] * 50), late_number, lambda v: v),
    "random.Random": Kind(lambda: random.Random(0), coin, lambda v: v),
    "numpy generator": Kind(lambda: np.random.default_rng(0), coin, lambda v: v),
    "random": Kind(lambda: None, global_coin, lambda v: v),
    "numpy.random": Kind(lambda: None, numpy_coin, lambda v: v),
    "clock": Kind(lambda: [float("inf")], clock, stop_clock),
    "file": Kind(Files.make, read_file, Files.change),
    "environment": Kind(lambda: "DNNSUITE_TEST_SCALE", read_environment, set_environment),
}  # fmt: skip
MOVING = ("generator", "iterator", "random.Random", "numpy generator", "random", "numpy.random")


class Net(torch.nn.Module):
    """A linear layer; its output is multiplied by what `scale` reads of the module."""

    def __init__(self, seed, scale=None):
        super().__init__()
        torch.manual_seed(seed)
        self.inner, self._scale = torch.nn.Linear(4, 2), scale


class HoldsIt(Net):
    """Holds the value in an attribute."""

    def __init__(self, seed, read, held):
        super().__init__(seed)
        self.read, self.held = read, held

    def forward(self, x):
        return self.inner(x) * self.read(self.held)


class Deep(Net):
    """Holds the value some objects deep."""

    def __init__(self, seed, read, held):
        super().__init__(seed)
        self.read, self.top = read, held

    def forward(self, x):
        node = self.top
        while hasattr(node, "sub"):
            node = node.sub
        return self.inner(x) * self.read(node.held)


def nested(value, depth):
    node = types.SimpleNamespace(held=value)
    for _ in range(depth - 1):
        node = types.SimpleNamespace(sub=node)
    return node


def leaf(node):
    while hasattr(node, "sub"):
        node = node.sub
    return node


def plain_loss(array, x):
    return array(x).square().flatten(1).mean(1)


class Held:
    """Where a value is: `models` read it in their forward, or `loss` does."""

    def models(self, read):
        return [Net(seed) for seed in range(B)]

    def put(self, array, value):
        raise NotImplementedError


def scaled(scale):
    return lambda array, x: (array.inner(x) * scale()).square().flatten(1).mean(1)


class InAttribute(Held):
    """In an attribute of the models."""

    def __init__(self, value, read):
        self.value, self.loss = value, plain_loss
        self.made = [HoldsIt(seed, read, value) for seed in range(B)]

    def number(self, read):
        return read(self.array.held)

    def put(self, value):
        self.array.held = value


class InDepth(Held):
    """In an object of an object ... of the models."""

    depth = 5

    def __init__(self, value, read):
        self.loss, self.top = plain_loss, nested(value, self.depth)
        self.made = [Deep(seed, read, self.top) for seed in range(B)]

    def number(self, read):
        return read(leaf(self.array.top).held)

    def put(self, value):
        leaf(self.array.top).held = value


class InDepth8(InDepth):
    depth = 8


class OfLoss(Held):
    """Where the loss function finds it."""

    def __init__(self, value, read):
        self.made, self.array = [Net(seed) for seed in range(B)], None
        self.set_up(value, read)

    def number(self, read):
        return self.scale()


class InClosure(OfLoss):
    def set_up(self, value, read):
        held = value

        def scale():
            return read(held)

        def put(value):
            nonlocal held
            held = value

        self.loss, self.scale, self.put = scaled(scale), scale, put


SHARED = {}
VALUE = READ = None


def scale_of_global():
    return READ(VALUE)


class InGlobal(OfLoss):
    def set_up(self, value, read):
        global READ
        READ = read
        self.put(value)
        self.loss, self.scale = scaled(scale_of_global), scale_of_global

    def put(self, value):
        global VALUE
        VALUE = value


class Settings:
    value = None


def setting():
    return Settings.value


class InClass(OfLoss):
    def set_up(self, value, read):
        self.put(value)
        self.scale = lambda: read(setting())
        self.loss = scaled(self.scale)

    def put(self, value):
        Settings.value = value


class InDefault(OfLoss):
    def set_up(self, value, read):
        def scale(held=value):
            return read(held)

        self.scale, self.loss = scale, scaled(scale)

    def put(self, value):
        self.scale.__defaults__ = (value,)


REGISTRY = {f"other {number}": number for number in range(20)}


def registered(name):
    return REGISTRY[name]


class InRegistry(OfLoss):
    def set_up(self, value, read):
        self.put(value)
        self.scale = lambda: read(registered("scale"))
        self.loss = scaled(self.scale)

    def put(self, value):
        REGISTRY["scale"] = value


def field(config):
    return config.held


def named_field(config, name="held"):
    return getattr(config, name)


def any_field(config, number):
    return getattr(config, f"{'he'}ld{number or ''}")


class ByHelper(OfLoss):
    """In an object that a helper function reads."""

    def set_up(self, value, read):
        self.config = config = argparse.Namespace(held=value)
        self.scale = lambda: read(self.field(config))
        self.loss = scaled(self.scale)

    field = staticmethod(field)

    def put(self, value):
        self.config.held = value


class ByName(ByHelper):
    field = staticmethod(named_field)


class ByAnyName(ByHelper):
    field = staticmethod(lambda config: any_field(config, 0))


class ByPartial(ByHelper):
    field = staticmethod(functools.partial(named_field, name="held"))


class Schedule:
    def __init__(self, value):
        self.held, self.table = value, {"plain": self.now}

    @property
    def current(self):
        return self.held

    def now(self):
        return self.held


class ByProperty(OfLoss):
    def set_up(self, value, read):
        self.schedule = schedule = Schedule(value)
        self.scale = lambda: read(schedule.current)
        self.loss = scaled(self.scale)

    def put(self, value):
        self.schedule.held = value


class ByMethod(ByProperty):
    def set_up(self, value, read):
        self.schedule = schedule = Schedule(value)
        self.scale = lambda: read(schedule.now())
        self.loss = scaled(self.scale)


class ByTable(ByProperty):
    """By a method in a table of functions."""

    def set_up(self, value, read):
        self.schedule = schedule = Schedule(value)
        table = schedule.table
        self.scale = lambda: read(table["plain"]())
        self.loss = scaled(self.scale)


class InFarObject(OfLoss):
    """Eight objects deep in a closure."""

    def set_up(self, value, read):
        self.top = top = nested(value, 8)
        self.scale = lambda: read(leaf(top).held)
        self.loss = scaled(self.scale)

    def put(self, value):
        leaf(self.top).held = value


HOLDERS = {
    "attribute": InAttribute,
    "depth 5": InDepth,
    "depth 8": InDepth8,
    "closure": InClosure,
    "global": InGlobal,
    "class": InClass,
    "default": InDefault,
    "registry": InRegistry,
    "helper": ByHelper,
    "getattr": ByName,
    "getattr of any name": ByAnyName,
    "partial": ByPartial,
    "property": ByProperty,
    "method": ByMethod,
    "table of methods": ByTable,
    "closure, depth 8": InFarObject,
}
BESIDE = ("ContextVar",)  # which each thread has for itself
EVERYWHERE = ("float", "dict of 3", "namespace", "slots", "array", "list")
EVERY_KIND = ("attribute", "closure", "helper")
OF_PACKAGES = ("Counter", "array.array", "digits of a Decimal")  # which have state in C
CASES = [
    pytest.param(holder, kind, threads, id=f"{holder} - {kind} - {threads}")
    for holder in HOLDERS
    for kind in KINDS
    for threads in (1, 2)
    if (kind in EVERYWHERE or (holder in EVERY_KIND and threads == 1))
    and (threads == 1 or holder in ("attribute", "closure", "global"))
] + [
    pytest.param(holder, kind, threads, id=f"{holder} - {kind} - {threads}")
    for holder, kinds, threads in (
        ("closure", BESIDE, 2),
        ("global", OF_PACKAGES, 1),
        ("attribute", OF_PACKAGES, 2),
        ("default", (*OF_PACKAGES, "type of a number"), 1),
    )
    for kind in kinds
]


@pytest.fixture(autouse=True)
def _as_before():
    yield
    os.environ.pop("DNNSUITE_TEST_SCALE", None)


@pytest.mark.parametrize(("holder", "kind", "threads"), CASES)
def test_another_value_is_used_or_refused(holder, kind, threads):
    each, random_state = KINDS[kind], random.getstate()
    held = HOLDERS[holder](each.make(), each.read)
    inner = [torch.nn.Linear(4, 2) for _ in held.made]
    for own, model in zip(inner, held.made, strict=True):
        own.load_state_dict(model.inner.state_dict())
    optimizers = [torch.optim.SGD(own.parameters(), lr=0.01) for own in inner]
    try:
        array = held.array = dnnsuite.fuse(held.made)
    except InvalidArgument as error:
        assert "cannot be copied" in str(error)  # noqa: PT017
        assert kind in ("ContextVar", "generator")
        return
    x = torch.randn(B, 3, 4, generator=torch.Generator().manual_seed(7))
    wrong = []
    with dnnsuite.StepRunner(
        array, optim.SGD(array.parameters(), lr=0.01), held.loss, threads=threads, width=1 if threads > 1 else None
    ) as runner:
        for step in range(BEFORE + AFTER):
            if step == BEFORE and kind not in MOVING:
                runner.synchronize()
                value = held.array.held if holder == "attribute" else held_value(held, holder)
                held.put(each.change(value))
            number = None if kind in MOVING else held.number(each.read)
            losses = runner.step(x).losses()
            if number is None:
                continue
            for index, (own, optimizer) in enumerate(zip(inner, optimizers, strict=True)):
                optimizer.zero_grad()
                loss = (own(x[index]) * number).square().mean()
                loss.backward()
                optimizer.step()
                if not torch.allclose(loss, losses[index], rtol=1e-3):
                    wrong.append((step, index, float(losses[index]), float(loss)))
        mode = runner.mode
    random.setstate(random_state)
    if kind in MOVING:
        assert mode != "captured"
    else:
        assert not wrong or mode.startswith("eager: "), (mode, wrong[:2])


def held_value(held, holder):
    """Return the value where it is now."""
    if holder.startswith("depth"):
        return leaf(held.array.top).held
    if holder == "closure":
        return next(
            c.cell_contents
            for c, n in zip(held.scale.__closure__, held.scale.__code__.co_freevars, strict=True)
            if n == "held"
        )
    if holder == "global":
        return VALUE
    if holder == "class":
        return Settings.value
    if holder == "default":
        return held.scale.__defaults__[0]
    if holder == "registry":
        return REGISTRY["scale"]
    if holder in ("property", "method", "table of methods"):
        return held.schedule.held
    return leaf(held.top).held if holder == "closure, depth 8" else held.config.held


class CountsDeep(Net):
    """Counts in an object of an object ... of its module."""

    def __init__(self, seed, depth):
        super().__init__(seed)
        self.top = nested(0, depth)

    def forward(self, x):
        leaf(self.top).held += 1
        return self.inner(x)


@pytest.mark.parametrize("capture", [True, False])
@pytest.mark.parametrize(("depth", "threads"), [(1, 1), (4, 2), (5, 1), (8, 1), (8, 2)])
def test_what_a_forward_counts_is_the_models(depth, threads, capture):
    array = dnnsuite.fuse([CountsDeep(seed, depth) for seed in range(B)])
    optimizer, x = optim.SGD(array.parameters(), lr=0.01), torch.randn(B, 3, 4)
    with dnnsuite.StepRunner(
        array, optimizer, plain_loss, threads=threads, width=B // threads, capture=capture
    ) as runner:
        for _ in range(9):
            runner.step(x)
    assert [leaf(array[index].top).held for index in range(B)] == [9] * B


class Doubling(Net):
    """Doubles its output by numbers of a generator of its own."""

    def __init__(self, seed):
        super().__init__(seed)
        self.numbers = random.Random(3)

    def forward(self, x):
        return self.inner(x) * (2.0 if self.numbers.random() < 0.5 else 1.0)


@pytest.mark.parametrize("threads", [1, 2])
def test_models_that_move_a_generator_of_their_own_run_eagerly_for_good(threads):
    alone = [Doubling(seed) for seed in range(B)]
    array = dnnsuite.fuse([Doubling(seed) for seed in range(B)])
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.01) for one in alone]
    x = torch.randn(B, 3, 4, generator=torch.Generator().manual_seed(7))
    with dnnsuite.StepRunner(array, optim.SGD(array.parameters(), lr=0.01), plain_loss, threads=threads) as runner:
        for _ in range(30):
            losses = runner.step(x).losses()
            for index, (own, optimizer) in enumerate(zip(alone, optimizers, strict=True)):
                optimizer.zero_grad()
                loss = own(x[index]).square().mean()
                loss.backward()
                optimizer.step()
                torch.testing.assert_close(losses[index], loss.detach())
        assert runner.mode.startswith("eager: ")
    assert [one.numbers.getstate() for one in dnnsuite.unfuse(array)] == [one.numbers.getstate() for one in alone]


def test_a_weak_reference_keeps_nothing_alive():
    held = [Record(2.0)]
    weak = weakref.ref(held[0])
    array = dnnsuite.fuse([Net(seed) for seed in range(B)])

    def factor():
        record = weak()
        return 10.0 if record is None else record.value

    x = torch.randn(B, 3, 4, generator=torch.Generator().manual_seed(7))
    with dnnsuite.StepRunner(array, optim.SGD(array.parameters(), lr=0.0), scaled(factor), threads=1) as runner:
        before = [runner.step(x).losses() for _ in range(6)]
        held.clear()
        after = runner.step(x).losses()
    assert weak() is None
    torch.testing.assert_close(after, 25 * before[-1])


@pytest.mark.parametrize("threads", [1, 2])
def test_memory_that_a_teacher_gets_between_steps(threads):
    teacher, plain = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
    array = dnnsuite.fuse([Net(seed) for seed in range(B)])
    plain.load_state_dict(teacher.state_dict())

    def loss(array, x):
        with torch.no_grad():
            goal = teacher(x)
        return (array.inner(x) - goal).square().flatten(1).mean(1)

    x = torch.randn(B, 3, 4, generator=torch.Generator().manual_seed(7))
    weight = array.inner.weight.detach().clone(), array.inner.bias.detach().clone()
    with dnnsuite.StepRunner(array, optim.SGD(array.parameters(), lr=0.0), loss, threads=threads) as runner:
        for step in range(9):
            if step in (5, 7):
                runner.synchronize()
                for one in (teacher, plain):
                    one.weight.data = 2 * one.weight.data
            losses = runner.step(x).losses()
            outputs = torch.baddbmm(weight[1].unsqueeze(1), x, weight[0].transpose(1, 2))
            torch.testing.assert_close(losses, (outputs - plain(x).detach()).square().flatten(1).mean(1))
        assert runner.mode == "captured"


def test_what_the_caller_changes_in_each_step_ends_no_capture():
    array = dnnsuite.fuse([Net(seed) for seed in range(B)])
    x = torch.randn(B, 3, 4, generator=torch.Generator().manual_seed(7))
    with dnnsuite.StepRunner(array, optim.SGD(array.parameters(), lr=0.01), scaled(lambda: 1.0), threads=1) as runner:
        for step in range(20):
            array.inner.bias.requires_grad_(step % 2 == 0)
            runner.step(x)
        assert not runner.mode.startswith("eager")
        for _ in range(6):
            runner.step(x)
        assert runner.mode == "captured"
