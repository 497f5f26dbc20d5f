# SPDX-License-Identifier: MIT
"""Values in which models differ, as code of all models sees them: a number of each, or one object with what those of
all have in common."""

from __future__ import annotations

import abc
import copy
import functools
import operator
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..._state import slots_of
from ...nn import model_tensor
from ...nn.model_tensor import ModelTensor, NotFusable, state
from ..comparison import has_hidden_state, is_made_by_python, same

#: Torch rounds a number in another way than a tensor of numbers in other dtypes.
FLOATS = frozenset((torch.float32, torch.float64))


class ModelNumber:
    """Numbers of B models that code sees as the one of its own.

    It is an argument of torch's functions, and a term or factor of numbers; comparisons with numbers have an answer
    where it is the same for all models. Whatever else is done with it is refused.

    torch's C functions take it for a symbolic number and ask `__torch_function__`, as they do for tensors.
    """

    __slots__ = ("_name", "_values")

    def __init__(self, values: Sequence[float], name: str) -> None:
        self._values, self._name = tuple(values), name

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return torch.SymFloat

    @property
    def node(self) -> Any:
        """Refuse to be a number of a function that knows no models: what it computes would be one for all."""
        raise TypeError(f"{self._name} differs from model to model")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return model_tensor.handler(func, args, kwargs or {})

    def __iter__(self) -> Iterator[float]:
        """Yield the number of each model, for functions of ours that take one of each."""
        return iter(self._values)

    def any(self) -> bool:
        """Return True if one of them is not zero."""
        return any(self._values)

    def refusal(self) -> NotFusable:
        return NotFusable(f"{self._name} differs from model to model")

    def _computed(self, function: Callable[[Any, Any], Any], other: Any) -> Any:
        if isinstance(other, torch.Tensor):
            return NotImplemented  # the tensor's own operator calls `__torch_function__`
        numbers = other._values if type(other) is ModelNumber else [other] * len(self._values)
        if not all(type(number) in (int, float) for number in numbers):
            raise self.refusal()
        return ModelNumber(list(map(function, self._values, numbers)), self._name)

    def _agreed(self, function: Callable[[Any, Any], bool], other: Any) -> bool:
        if isinstance(other, torch.Tensor):
            return NotImplemented
        if not isinstance(other, (int, float)):  # a number that a recording follows says it is one
            raise self.refusal()
        answers = {function(value, other) for value in self._values}
        if len(answers) > 1:
            raise self.refusal()
        return answers.pop()

    def __bool__(self) -> bool:
        return self._agreed(operator.ne, 0)

    def __abs__(self) -> ModelNumber:
        return ModelNumber(list(map(abs, self._values)), self._name)

    def __neg__(self) -> ModelNumber:
        return ModelNumber([-value for value in self._values], self._name)

    __hash__ = None  # type: ignore[assignment]


def _computing(function: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    def own(self: ModelNumber, other: Any) -> Any:
        return self._computed(function, other)

    def reflected(self: ModelNumber, other: Any) -> Any:
        return self._computed(lambda mine, theirs: function(theirs, mine), other)

    return own, reflected


for _name in ("add", "sub", "mul", "truediv", "pow"):
    _own, _reflected = _computing(getattr(operator, _name))
    setattr(ModelNumber, f"__{_name}__", _own)
    setattr(ModelNumber, f"__r{_name}__", _reflected)
for _name in ("lt", "le", "gt", "ge", "eq"):
    _agrees = functools.partialmethod(ModelNumber._agreed, getattr(operator, _name))
    setattr(ModelNumber, f"__{_name}__", _agrees)


def _refuse(kind: Any, names: str) -> None:
    """Let objects of `kind` refuse the methods of these names."""

    def refused(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise self.refusal()

    for name in names.split():
        setattr(kind, f"__{name}__", refused)


_refuse(
    ModelNumber,
    "float int index complex round trunc mod rmod floordiv rfloordiv getitem call str format deepcopy reduce_ex",
)


_DEEP = 6  # objects in objects that are looked into
_WITH_ELEMENTS = (bool, int, float, complex, str, bytes, list, tuple, set, frozenset)
_COPYING = ("__copy__", "__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__")
_MISSING = object()


class Differs:
    """Value in a stand-in in which models differ; whatever reads it is refused."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def refusal(self) -> Exception:
        """Return the exception that a reader gets."""
        what = f"{self._what} differs from model to model"
        return NotFusable(what) if state.B else AttributeError(f"{what}; array[i] has that of model i")

    def __repr__(self) -> str:
        return f"<{self._what} differs from model to model>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Differs:
        return self

    def __reduce__(self) -> Any:
        return Differs, (self._what,)


_refuse(
    Differs,
    "bool int float index complex len iter getitem contains call str format eq ne lt le gt ge add radd sub rsub mul "
    "rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow neg pos abs matmul rmatmul",
)
Differs.__hash__ = object.__hash__  # type: ignore[method-assign]


def _read(value: Any) -> Any:
    if type(value) is Differs:
        raise value.refusal()
    return value


def _read_inside(value: Any) -> Any:
    return _read(value) if state.B else value


def _of_all(value: Any) -> Any:
    if type(value) in (ModelTensor, ModelNumber):
        raise NotFusable("its code keeps a value of each model in an object in which models differ")
    return value


class StandIn:
    """Mix-in, before the user's class, of an object in place of those of all models."""

    _fused_original: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Tell the user's class nothing: it may keep a list of the classes derived from it."""

    def __getattribute__(self, name: str) -> Any:
        return _read(super().__getattribute__(name))

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, _of_all(value))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _restored, (self._fused_original, vars(self), elements(self))


class StandInDict(StandIn):
    """Mix-in of a dictionary in place of those of all models; it refuses readers in a forward alone."""

    def __setitem__(self, key: Any, value: Any) -> None:
        dict.__setitem__(self, key, _of_all(value))  # type: ignore[index]

    def values(self) -> Any:
        return list(map(_read_inside, elements(self).values()))

    def items(self) -> Any:
        return [(key, _read_inside(value)) for key, value in elements(self).items()]

    def copy(self) -> Any:
        return dict(self.items())

    def __eq__(self, other: object) -> bool:
        return bool(self.copy() == (elements(other) if isinstance(other, StandInDict) else other))

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    __hash__ = None  # type: ignore[assignment]


def _reader(read: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *args: _read_inside(read(self, *args))


for _name in ("__getitem__", "get", "pop", "setdefault"):
    setattr(StandInDict, _name, _reader(getattr(dict, _name)))


def elements(made: Any) -> dict[Any, Any]:
    """Return what a dictionary holds, as a plain one; of anything else an empty one."""
    return dict(dict.items(made)) if isinstance(made, dict) else {}


def _restored(kind: Any, attributes: dict[str, Any], held: dict[Any, Any]) -> Any:
    derived = _class_of(kind)
    made = next(base for base in kind.__mro__ if not is_made_by_python(base)).__new__(derived)
    vars(made).update(attributes)
    if held:
        dict.update(made, held)
    return made


@functools.lru_cache(maxsize=256)
def _class_of(kind: Any) -> Any:
    body = {"_fused_original": kind, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    mixin = StandInDict if issubclass(kind, dict) else StandIn
    return type(kind)(kind.__name__, (mixin, kind), body)


@functools.lru_cache(maxsize=1024)
def is_its_attributes(kind: Any) -> bool:
    """Return True for a class whose objects are what their `__dict__` holds, or a dictionary and that."""
    known = next((base for base in (dict, types.SimpleNamespace) if issubclass(kind, base)), object)
    return (
        type(kind) in (type, abc.ABCMeta)
        and (is_made_by_python(kind) or kind is known is not object)
        and not issubclass(kind, (torch.nn.Module, torch.Tensor, StandIn, *_WITH_ELEMENTS))
        and not has_hidden_state(kind)
        and not [name for name in slots_of(kind) if name != "__dict__"]
        and all(getattr(kind, name, None) is getattr(known, name, None) for name in _COPYING)
    )


def stands_in(value: Any) -> bool:
    """Return True for an object in place of those of all models."""
    return isinstance(value, StandIn)


def attributes_of(value: Any) -> dict[str, Any]:
    """Return the attributes of an object; those of a plain dictionary are none."""
    return getattr(value, "__dict__", {})


def attributes_alone(value: Any) -> tuple[dict[str, Any], dict[Any, Any]] | None:
    """Return attributes and elements of an object that is nothing but these; None for other values.

    Of a stand-in what differs is the class `Differs`.
    """
    kind: Any = type(value)
    if not isinstance(value, StandIn) and not is_its_attributes(kind):
        return None
    return _described(attributes_of(value)), _described(elements(value))


def _described(held: dict[Any, Any]) -> dict[Any, Any]:
    return {name: Differs if type(value) is Differs else value for name, value in held.items()}


def stand_in(values: Sequence[Any], depth: int = _DEEP) -> Any:
    """Make an object in place of `values`, one of each model; None if there can be none."""
    kind: Any = type(values[0])
    if not depth or any(type(value) is not kind for value in values) or not is_its_attributes(kind):
        return None
    attributes = _in_common(kind, [attributes_of(value) for value in values], depth)
    return _restored(kind, attributes, _in_common(kind, [elements(value) for value in values], depth))


def _in_common(kind: Any, held: Sequence[dict[Any, Any]], depth: int) -> dict[Any, Any]:
    found = {}
    for name in dict.fromkeys(name for one in held for name in one):
        values = [one.get(name, _MISSING) for one in held]
        if all(same(values[0], other) for other in values[1:]):
            found[name] = copy.deepcopy(values[0])
        else:
            inner = stand_in(values, depth - 1)
            found[name] = Differs(f"{name} of a {kind.__name__}") if inner is None else inner
    return found


def differing(made: StandIn) -> Iterator[Any]:
    """Yield the names and keys of what differs, in objects that it holds too."""
    for name, held in (*attributes_of(made).items(), *elements(made).items()):
        if type(held) is Differs:
            yield name
        elif isinstance(held, StandIn):
            yield from differing(held)


def follow(value: Any, made: StandIn) -> None:
    """Set in the object of one model what was set in the one for all."""
    _follow(attributes_of(value), attributes_of(made))
    if isinstance(value, dict):
        mine = elements(value)
        _follow(mine, elements(made))
        if not same(mine, elements(value)):
            dict.clear(value)
            dict.update(value, mine)


def _follow(mine: dict[Any, Any], now: dict[Any, Any]) -> None:
    for name, held in now.items():
        if isinstance(held, StandIn):
            follow(mine[name], held)
        elif type(held) is not Differs and not same(mine.get(name, _MISSING), held):
            mine[name] = copy.deepcopy(held)
    for name in [name for name in mine if name not in now]:
        del mine[name]
