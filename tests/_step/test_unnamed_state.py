# SPDX-License-Identifier: MIT
"""Values that a forward reads without naming them: settings of Python and its libraries, what objects say of
themselves, attributes of plain values, results that are kept, and code that comes late. Each changes between steps."""

import abc
import builtins
import collections
import copy
import dataclasses
import decimal
import enum
import functools
import operator
import os
import signal
import sys
import threading
import types
import warnings
from contextlib import suppress

import numpy as np
import pytest
import torch

import dnnsuite
from dnnsuite import optim

CASES = {}


def case(make):
    """Add a case: `make()` returns what a forward reads, and what changes it."""
    CASES[make.__name__] = make
    return make


class Sub(float):
    """A number with attributes."""


class Text(str):
    """A text with attributes."""


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Thing:
    """An object with attributes."""


@dataclasses.dataclass
class Point:
    x: float = 1.0
    y: float = 2.0


class Named(abc.ABC):  # noqa: B024
    """An abstract class that others may join."""


class Shared:
    """Objects with one dictionary for all."""

    state = {"x": 1.0}  # noqa: RUF012

    def __init__(self):
        self.__dict__ = Shared.state


class Kept:
    """A class that keeps results."""

    x = 1.0

    @staticmethod
    @functools.cache
    def kept():
        return Kept.x


def attribute_of(value):
    value.scale = 1.0
    return lambda: value.scale, lambda x: setattr(value, "scale", x)


for kind, value in {
    "number": Sub(1.0),
    "text": Text("a"),
    "member": Colour.RED,
    "number of a member": Level.LOW,
}.items():
    CASES[f"attribute of a {kind}"] = functools.partial(attribute_of, value)


@case
def precision_of_decimals():
    ten = decimal.Decimal(10)
    return lambda: float(ten / 7), lambda x: setattr(decimal.getcontext(), "prec", int(x))


@case
def precision_of_new_decimals():
    return (
        lambda: float(decimal.Decimal(2) / decimal.Decimal(7)),
        lambda x: setattr(decimal.getcontext(), "prec", int(x)),
    )


@case
def errors_of_numpy():
    np.seterr(divide="ignore")

    def read():
        try:
            return float(np.float64(1.0) / np.float64(0.0) > 0)
        except FloatingPointError:
            return 0.25

    return read, lambda x: np.seterr(divide="raise" if x == 2.0 else "ignore")


@case
def filters_of_warnings():
    def read():
        try:
            warnings.warn("seen", stacklevel=1)
            return 1.0
        except UserWarning:
            return 2.0

    return read, lambda x: warnings.simplefilter("error" if x == 2.0 else "ignore")


@case
def arguments_of_the_program():
    return lambda: float(len(sys.argv)), lambda x: sys.argv.append("--more")


@case
def table_of_modules():
    return lambda: 1.0 + ("dnnsuite_late" in sys.modules), lambda x: sys.modules.update(dnnsuite_late=types)


@case
def limit_of_recursion():
    return lambda: sys.getrecursionlimit() / 1000, lambda x: sys.setrecursionlimit(1000 + int(x) * 100)


@case
def variable_of_the_environment():
    os.environ["SCALE_OF_A_TEST"] = "1.0"
    return (lambda: float(os.path.expandvars("$SCALE_OF_A_TEST")), lambda x: os.environ.update(SCALE_OF_A_TEST=str(x)))


@case
def folder():
    return lambda: float(len(os.getcwd())), lambda x: os.chdir("/" if x == 2.0 else "/usr")


@case
def seed():
    return lambda: float(np.log(torch.initial_seed() + 2)), lambda x: torch.manual_seed(int(x))


@case
def handler_of_a_signal():
    return (
        lambda: 1.0 + (signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN),
        lambda x: signal.signal(signal.SIGUSR1, signal.SIG_IGN if x == 2.0 else signal.SIG_DFL),
    )


@case
def name_of_the_thread():
    return (
        lambda: float(len(threading.current_thread().name)),
        lambda x: setattr(threading.current_thread(), "name", "t" * int(x)),
    )


@case
def lock():
    held = threading.Lock()
    return lambda: 1.0 + held.locked(), lambda x: held.acquire(blocking=False)


@case
def name_in_a_getter():
    thing, getter = Thing(), operator.attrgetter("inner.hidden_in_a_getter")
    thing.inner = types.SimpleNamespace(hidden_in_a_getter=1.0)
    return lambda: getter(thing), lambda x: setattr(thing.inner, "hidden_in_a_getter", x)


@case
def name_in_a_format():
    thing = types.SimpleNamespace(in_format=1.0)
    return lambda: float(f"{thing.in_format}"), lambda x: setattr(thing, "in_format", x)


@case
def fields_by_position():
    point = Point()

    def read():
        match point:
            case Point(first, _):
                return first

    return read, lambda x: setattr(point, "x", x)


@case
def text_of_an_object():
    point = Point()
    return lambda: float(repr(point).split("x=")[1].split(",")[0]), lambda x: setattr(point, "x", x)


@case
def equality_of_objects():
    point = Point()
    return lambda: 1.0 + (point == Point(1.0)), lambda x: setattr(point, "x", x)


@case
def pythons_own_names():
    builtins.named_by_a_test = 1.0
    return lambda: named_by_a_test, lambda x: setattr(builtins, "named_by_a_test", x)  # noqa: F821


@case
def class_around_a_function_of_c():
    kind = type("Around", (), {"clone": functools.wraps(torch.Tensor.clone)(lambda self: self.clone()), "x": 1.0})
    return lambda: kind.x, lambda x: setattr(kind, "x", x)


@case
def late_global():
    def read():
        try:
            return global_of_a_test
        except NameError:
            return 1.0

    return read, lambda x: globals().update(global_of_a_test=x)


@case
def documentation():
    def described():
        """1.0"""

    return lambda: float(described.__doc__), lambda x: setattr(described, "__doc__", str(x))


@case
def name_of_a_class():
    kind = type("A", (), {})
    return lambda: float(len(kind.__name__)), lambda x: setattr(kind, "__name__", "a" * int(x))


@case
def classes_below():
    base, kept = type("Base", (), {}), []
    return lambda: 1.0 + len(base.__subclasses__()), lambda x: kept.append(type("Below", (base,), {}))


@case
def classes_that_joined():
    thing = type("Joined", (), {})
    return lambda: 1.0 + isinstance(thing(), Named), lambda x: Named.register(thing)


@case
def names_of_an_object():
    thing = Thing()
    return lambda: 1.0 + sum(name.startswith("q_") for name in dir(thing)), lambda x: setattr(thing, f"q_{x}", 1)


@case
def view_of_a_dictionary():
    held = {"a": 1.0}
    values = held.values()
    return lambda: sum(values), lambda x: held.update(a=x)


@case
def read_only_dictionary():
    held = {"a": 1.0}
    seen = types.MappingProxyType(held)
    return lambda: seen["a"], lambda x: held.update(a=x)


@case
def missing_items():
    value = [1.0]
    held = collections.defaultdict(lambda: value[0])
    return lambda: (held["a"], held.pop("a"))[0], lambda x: value.__setitem__(0, x)


@case
def dictionary_of_all_objects():
    return lambda: Shared().x, lambda x: Shared.state.update(x=x)


@case
def results_that_are_kept():
    value = {"a": 1.0}

    @functools.lru_cache
    def kept():
        return value["a"]

    return lambda: kept(), lambda x: (value.update(a=x), kept.cache_clear())


@case
def results_that_a_class_keeps():
    return lambda: Kept.kept(), lambda x: (setattr(Kept, "x", x), Kept.kept.cache_clear())


@case
def late_method():
    thing, value = type("Late", (), {})(), [1.0]

    def change(x):
        type(thing).method = lambda self: value[0]
        value[0] = x

    return lambda: thing.method() if hasattr(thing, "method") else 1.0, change


@case
def late_function():
    held, value = {}, [1.0]

    def change(x):
        held.setdefault("late", lambda: value[0])
        value[0] = x

    return lambda: held.get("late", lambda: 1.0)(), change


@case
def size_of_a_tensor():
    tensor = torch.ones(1)
    return lambda: float(tensor.shape[0]), lambda x: tensor.resize_(int(x))


@case
def whether_a_tensor_is_trained():
    tensor = torch.ones(1)
    return lambda: 1.0 + tensor.requires_grad, lambda x: tensor.requires_grad_(x == 2.0)


@case
def gradient_of_a_tensor():
    tensor = torch.ones(1, requires_grad=True)
    return lambda: 1.0 if tensor.grad is None else tensor.grad.item(), lambda x: setattr(
        tensor, "grad", torch.tensor([x])
    )


@case
def late_attribute_of_a_tensor():
    tensor = torch.ones(1)
    return lambda: getattr(tensor, "scale", 1.0), lambda x: setattr(tensor, "scale", x)


@pytest.fixture(autouse=True)
def everything_as_before(monkeypatch, tmp_path):
    """Undo what a case has changed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv[:])
    monkeypatch.setenv("SCALE_OF_A_TEST", "1.0")
    context, errors, limit = decimal.getcontext().copy(), np.geterr(), sys.getrecursionlimit()
    handler, name, drawn = signal.getsignal(signal.SIGUSR1), threading.current_thread().name, torch.get_rng_state()
    with warnings.catch_warnings():
        yield
    decimal.setcontext(context)
    np.seterr(**errors)
    sys.setrecursionlimit(limit)
    signal.signal(signal.SIGUSR1, handler)
    threading.current_thread().name = name
    torch.set_rng_state(drawn)
    sys.modules.pop("dnnsuite_late", None)
    globals().pop("global_of_a_test", None)
    with suppress(AttributeError):
        del builtins.named_by_a_test
    Kept.x, Shared.state["x"] = 1.0, 1.0
    Kept.kept.cache_clear()


@pytest.mark.parametrize("name", CASES)
def test_a_forward_uses_what_it_would_find_now(name):
    read, change = CASES[name]()

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)

        def forward(self, x):
            return self.linear(x) * read()

    models = [Net().double() for _ in range(2)]
    alone = copy.deepcopy(models)
    array = dnnsuite.fuse(models)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in alone]
    runner = dnnsuite.StepRunner(
        array,
        optim.SGD(array.parameters(), lr=0.01),
        lambda array, x: array(x).square().mean((1, 2)),
        threads=1,
        audit=0,
    )
    with runner:
        for step in range(14):
            if step in (5, 8, 11):
                change({5: 2.0, 8: 3.0, 11: 2.0}[step])
            x = torch.randn(2, 4, 3, dtype=torch.float64)
            expected = []
            for model, optimizer, own in zip(alone, optimizers, x, strict=True):
                optimizer.zero_grad()
                loss = model(own).square().mean()
                loss.backward()
                optimizer.step()
                expected.append(loss.detach())
            torch.testing.assert_close(runner.step(x).losses(), torch.stack(expected))
        assert runner.mode == "captured" or runner.mode.startswith("eager: the step"), runner.mode
