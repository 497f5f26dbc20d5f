# SPDX-License-Identifier: MIT
"""Classes of modules as people write them: bases before `torch.nn.Module`, classes that say how they are pickled, and
classes of which each model has one of its own."""

import abc
import copy
import pickle
import types
import typing

import pytest
import torch

import dnnsuite
from dnnsuite.errors import InvalidArgument
from helpers import make_models
from trained_models import check_trained

T = typing.TypeVar("T")


class Sized(typing.Protocol):
    def size(self) -> int: ...


class Mixin:
    __slots__ = ()

    def size(self):
        return 2


class Abstract(abc.ABC):
    @abc.abstractmethod
    def size(self): ...


class Listed:
    classes: typing.ClassVar[list[type]] = []

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        Listed.classes.append(cls)


def net_of(*bases):
    def make(self):
        torch.nn.Module.__init__(self)
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x).tanh() * self.size()

    body = {"__init__": make, "forward": forward, "size": lambda self: len(Listed.classes), "__module__": __name__}
    return types.new_class("Net", bases, {}, lambda names: names.update(body))


@pytest.mark.parametrize(
    "bases",
    [
        (abc.ABC, torch.nn.Module),
        (Abstract, torch.nn.Module),
        (typing.Generic[T], torch.nn.Module),
        (Sized, torch.nn.Module),
        (Mixin, torch.nn.Module),
        (torch.nn.Module, Mixin, abc.ABC),
        (Listed, torch.nn.Module),
        (abc.ABC, torch.nn.Sequential),
    ],
    ids=lambda bases: ", ".join(getattr(base, "__name__", str(base)) for base in bases),
)
def test_bases_before_and_after_module(bases):
    """A class that is told of those that derive from it is not told of the array's."""
    check_trained(net_of(*bases))


def test_a_class_that_may_have_no_others_below_it():
    class Final(torch.nn.Module):
        def __init_subclass__(cls):
            raise TypeError("Final is final")

        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.inner(x).tanh()

    check_trained(Final, runner=False)


def test_a_class_whose_new_takes_arguments():
    class Made(torch.nn.Module):
        def __new__(cls, width):
            return super().__new__(cls)

        def __init__(self, width):
            super().__init__()
            self.inner = torch.nn.Linear(4, width)

        def forward(self, x):
            return self.inner(x).tanh()

    array = check_trained(lambda: Made(4))
    assert copy.deepcopy(array)[1].inner.weight.equal(array[1].inner.weight)


def test_attributes_in_slots_are_refused():
    class Slotted:
        __slots__ = ("scale",)

    class Net(Slotted, torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 2

    with pytest.raises(InvalidArgument, match=r"the top, a Net, keeps scale in __slots__.*: remove it from __slots__"):
        dnnsuite.fuse([Net(), Net()])


class Parts(torch.nn.Module):
    """Its state is a dictionary in a dictionary."""

    def __init__(self):
        super().__init__()
        self.rule, self.inner = "sum", torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x).tanh()

    def __getstate__(self):
        return {"rule": self.rule, "all": vars(self).copy()}

    def __setstate__(self, state):
        vars(self).update(state["all"], rule=state["rule"])


class Remade(torch.nn.Module):
    """It is made anew from its arguments."""

    def __init__(self, width):
        super().__init__()
        self.width, self.inner = width, torch.nn.Linear(width, width)

    def forward(self, x):
        return self.inner(x).tanh()

    def __getstate__(self):
        return {"width": self.width}

    def __setstate__(self, state):
        self.__init__(**state)


class Itself(Parts):
    """It is no copy."""

    def __deepcopy__(self, memo):
        return self


@pytest.mark.parametrize("make", [Parts, lambda: Remade(4), Itself])
def test_classes_that_say_how_they_are_copied(make):
    array = check_trained(lambda: torch.nn.Sequential(make(), torch.nn.Tanh(), make()))
    x = torch.randn(2, 5, 4, dtype=torch.float64)
    again = pickle.loads(pickle.dumps(array))
    assert again(x).equal(array(x))
    array.drop([0])
    assert again(x)[1].equal(array(x[1:])[0])


def factory(scale=1.0):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 4), Block()

        def forward(self, x):
            return self.second(self.first(x).tanh())

    class Block(torch.nn.Module):
        factor = 2.0

        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)

        @classmethod
        def scaled(cls, x):
            return x * cls.factor * scale

        def forward(self, x):
            return self.scaled(self.inner(x))

    return Net()


def test_a_class_that_a_function_makes_for_each_model():
    check_trained(factory)


def test_classes_of_one_name_with_other_code_are_refused():
    with pytest.raises(InvalidArgument, match="two classes of the name Net that differ in __init__: make the models"):
        dnnsuite.fuse([factory(1.0), factory(2.0)])


CELL = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        return scaled(self.inner(x))

def scaled(x):
    return x.tanh() * SCALE
"""


def test_a_cell_of_a_notebook_that_ran_again():
    """The same code, some lines further down."""
    notebook, lines = {"torch": torch, "SCALE": 2.0}, iter(range(100))

    def run():
        exec(compile("\n" * next(lines) + CELL, "<cell>", "exec"), notebook)
        return notebook["Net"]()

    check_trained(run, runner=False)
    first = run()
    exec(CELL.replace("self.inner(x))", "self.inner(x) + 1)"), notebook)
    with pytest.raises(InvalidArgument, match="two classes of the name Net that differ in forward"):
        dnnsuite.fuse([first, notebook["Net"]()])


class Traced(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x):
        return torch.nn.functional.gelu(self.inner(x)) * self.scale + x.sum(-1, keepdim=True)


def edited():
    graph = torch.fx.symbolic_trace(Traced())
    for node in graph.graph.nodes:
        if node.target is torch.nn.functional.gelu:
            node.target, node.kwargs = torch.tanh, {}
    graph.recompile()
    return graph


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.fx.symbolic_trace(Traced()),
        lambda: torch.nn.Sequential(torch.fx.symbolic_trace(Traced()), torch.nn.Linear(4, 2)),
        lambda: copy.deepcopy(torch.fx.symbolic_trace(Traced())),
        edited,
    ],
    ids=["traced", "inside", "copied", "edited"],
)
def test_graphs(make):
    check_trained(make)


def test_a_graph_from_an_array_is_edited_alone():
    models = make_models(lambda: torch.fx.symbolic_trace(Traced()), 2)
    x = torch.randn(2, 5, 4)
    array = dnnsuite.fuse(models)
    expected = array(x)
    first, second = dnnsuite.unfuse(array)
    for node in first.graph.nodes:
        if node.target is torch.nn.functional.gelu:
            node.target, node.kwargs = torch.tanh, {}
    first.recompile()
    assert not torch.allclose(first(x[0]), expected[0])
    torch.testing.assert_close(second(x[1]), expected[1])
    torch.testing.assert_close(models[0](x[0]), expected[0])
    torch.testing.assert_close(array(x), expected)


def test_other_graphs_are_refused():
    with pytest.raises(InvalidArgument, match="two classes of the name Traced that differ in forward"):
        dnnsuite.fuse([torch.fx.symbolic_trace(Traced()), edited()])
