# SPDX-License-Identifier: MIT
"""Names in the code that a model's forward can reach: draws, also in a branch not taken yet, reads, writes."""

from __future__ import annotations

import dis
import functools
import random
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

from ..._code import branches, codes_of, content_of, names_of, stored_attributes, texts_of
from ..._state import attribute_of
from ...nn.array_module import ArrayModule
from ...nn.model_tensor import state

#: Functions and methods that draw for a tensor that all models share, if nobody looks out for them.
_DRAWING = frozenset((
    "rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson", "binomial", "normal_",
    "uniform_", "exponential_", "bernoulli_", "random_", "geometric_", "log_normal_", "cauchy_", "sample", "rsample",
    "trunc_normal_", "gumbel_softmax", "xavier_normal_", "xavier_uniform_", "kaiming_normal_", "kaiming_uniform_",
))  # fmt: skip
_GRADIENTS_OFF = frozenset(("no_grad", "set_grad_enabled", "inference_mode"))
#: Names that write, beside those that end in an underscore: of torch's functions, whose code is not followed.
_WRITING = frozenset((
    "setattr", "__setitem__", "load_state_dict", "vector_to_parameters", "update_parameters", "step",
    "register_parameter", "apply",
))  # fmt: skip
_GRADIENTS = frozenset(("requires_grad_", "requires_grad", "grad", "zero_grad"))
_STORING = frozenset(
    opcode
    for name, opcode in dis.opmap.items()
    if name in ("STORE_SUBSCR", "STORE_SLICE") or name.startswith("INPLACE_")
)
_BINARY = dis.opmap.get("BINARY_OP")  # from Python 3.11 on: `x += y` is one, with an argument from 13 to 25
_IN_PLACE = range(13, 26)
#: Functions and methods that look at the values of a tensor.
_LOOKING = frozenset(("item", "tolist", "numpy", "float", "bool", "equal", "allclose"))
_NO_CODE = frozenset(
    (bool, int, float, str, type(None), dict, list, set, tuple, OrderedDict, torch.Tensor, torch.nn.Parameter)
)
_NOT_FOLLOWED = frozenset(("torch", "numpy", "dnnsuite", "builtins", *sys.stdlib_module_names))


def is_followed(module: str) -> bool:
    """Return True unless a module is of torch, NumPy, this package or Python's own library, whose code is known."""
    return module.partition(".")[0] not in _NOT_FOLLOWED


class Code(list[tuple[types.FunctionType, frozenset[str]]]):
    """Functions that a call can reach, each with the names in its code; see `reachable`.

    Attributes:
        outside: places that it can change, once `KeptOutside` has looked for them.
    """

    outside: Any = None


def _once(find: Callable[[Code], Any]) -> Callable[[Code], Any]:
    """Decorator: what is found of code is remembered in it."""

    @functools.wraps(find)
    def found(code: Code) -> Any:
        known = vars(code)
        if find.__name__ not in known:
            known[find.__name__] = find(code)
        return known[find.__name__]

    return found


@_once
def names_that_draw(code: Code) -> Set[str]:
    """Find names that draw in the first function with any."""
    for function, names in code:
        found = names & _DRAWING or {name for name in names if _is_random(function.__globals__.get(name), names)}
        if found:
            return found
    return set()


@_once
def names_other_generators(code: Code) -> bool:
    """Return True if code names generators of Python or NumPy."""
    return any(_is_random(function.__globals__.get(name), names) for function, names in code for name in names)


@_once
def may_write_parameters(code: Code) -> bool:
    """Return True if code names `.data`, or turns gradients off and writes into anything."""
    off = writes = False
    for function, names in code:
        off = off or bool(names & _GRADIENTS_OFF)
        writes = writes or _writes(function.__code__, names)
        if "data" in names or (off and writes):
            return True
    return False


@_once
def handles_gradients(code: Code) -> bool:
    """Return True if code names flags or gradients of tensors."""
    return any(names & _GRADIENTS for _, names in code)


@_once
def may_look_later(code: Code) -> bool:
    """Return True if code may look at values in a branch, so that a later call does though the first did not."""
    return any(names & _LOOKING and branches(function.__code__) for function, names in code)


def _writes(code: types.CodeType, names: frozenset[str]) -> bool:
    """Return True if code calls functions in place, or stores into parts of anything."""
    if names & _WRITING or any(name.endswith("_") and not name.endswith("__") for name in names):
        return True
    pairs = zip(code.co_code[::2], code.co_code[1::2], strict=True)
    if any(opcode in _STORING or (opcode == _BINARY and held in _IN_PLACE) for opcode, held in pairs):
        return True
    tuples = [constant for constant in code.co_consts if isinstance(constant, tuple)]
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return any("out" in constant for constant in tuples) or any(_writes(one, names) for one in inner)


def reachable(root: torch.nn.Module, method: str = "") -> Code:
    """Return the functions that a call of `root`, or of its `method`, can reach, each with the names in its code.

    Names are followed to methods of the models' classes, to functions, classes and modules that the code names, and
    to what closures hold; not into torch, NumPy and Python's own library.
    """
    modules = list(root.modules())
    owners, held = _owners([module for module in modules if not isinstance(module, ArrayModule)])
    waiting = []
    for module in modules:
        for hooks in (module._forward_hooks, module._forward_pre_hooks):
            waiting += [code for hook in hooks.values() for code in _functions(hook)]
    known = {} if state.reached is None else state.reached
    key = method, frozenset(owners), tuple(held), tuple(waiting)
    if key not in known:
        methods = _methods(owners, held)
        waiting += [found for name in (method, "forward", "__call__") for found in methods.get(name, ())]
        known[key] = _reached(waiting, methods)
    found: Code = known[key]
    return found


@contextmanager
def analysed_once() -> Iterator[None]:
    """Context manager: calls in it analyse code once, which blocks of a model and shards of an array have alike. Code
    that a user changes meanwhile, by hand or by an import, counts in later ones."""
    with state.having(reached={} if state.reached is None else state.reached):
        yield


def _reached(waiting: list[types.FunctionType], methods: dict[str, list[types.FunctionType]]) -> Code:
    """Follow names from the functions `waiting`."""
    seen = dict[types.CodeType, types.FunctionType]()
    while waiting:
        function = waiting.pop()
        if function.__code__ not in seen and is_followed(function.__module__ or ""):
            seen[function.__code__] = function
            names = names_in(function)
            waiting += [found for name in names & methods.keys() for found in methods[name]]
            waiting += _of_globals(function.__globals__, names)
            waiting += _closed_over(function)
    return Code((function, names_in(function)) for function in seen.values())


def _closed_over(function: types.FunctionType) -> list[types.FunctionType]:
    return [found for cell in function.__closure__ or () for found in _functions(content_of(cell))]


def _of_globals(space: dict[str, Any], names: frozenset[str]) -> Iterator[types.FunctionType]:
    """Yield the functions of globals that code names; of a module those that the code names too."""
    for name in names & space.keys():
        value = space[name]
        if not isinstance(value, types.ModuleType):
            yield from _functions(value)
        elif is_followed(value.__name__):
            # What a module that imports lazily has not imported yet has not been called.
            for inner in names & vars(value).keys():
                yield from _functions(vars(value)[inner])


def _is_random(value: Any, names: frozenset[str]) -> bool:
    """Return True for Python's module random, one of its functions, and NumPy's."""
    if isinstance(value, types.ModuleType):
        return value.__name__ in ("random", "numpy.random") or (value.__name__ == "numpy" and "random" in names)
    return isinstance(attribute_of(value, "__self__"), (random.Random, np.random.RandomState))


def _owners(modules: list[torch.nn.Module]) -> tuple[set[type], list[tuple[str, types.FunctionType]]]:
    """Collect the models' own classes and those of the objects that they hold, and the functions held, by name."""
    held: list[tuple[str, types.FunctionType]] = []
    owners: set[type] = {type(module) for module in modules}
    for module in modules:
        for name, value in vars(module).items():
            if type(value) in _NO_CODE:  # most are
                continue
            for function in _functions(value):
                held += [(name, function), ("forward", function)]  # it may be called by another name
            if not isinstance(value, (type, torch.Tensor, torch.nn.Module)):
                owners.add(type(value))
    return owners, held


def _methods(
    owners: Iterable[type], held: Iterable[tuple[str, types.FunctionType]], torchs: bool = False
) -> dict[str, list[types.FunctionType]]:
    """Collect functions that are held, and those of classes, by name; with `torchs` also those of torch's layers."""
    found: dict[str, list[types.FunctionType]] = {}
    for name, function in held:
        found.setdefault(name, []).append(function)
    for base in dict.fromkeys(base for owner in owners for base in owner.__mro__):
        if is_followed(base.__module__) or (torchs and base not in (torch.nn.Module, object)):
            for name, value in vars(base).items():
                found.setdefault(name, []).extend(_functions(value))
    return found


def _functions(value: Any) -> list[types.FunctionType]:
    """Return the Python functions that a call of `value`, or a look at a property, runs first."""
    if type(value) is types.FunctionType and not value.__dict__:  # most are, and all of their attributes lie there
        return _functions_of(value)
    if type(value) in _NO_CODE or isinstance(value, torch.SymFloat):  # a look at a followed number is a read
        return []
    for inner in ("__wrapped__", "__func__", "func", "fget", "function"):
        held = attribute_of(value, inner)
        if isinstance(held, types.FunctionType):
            return [held, *_functions_of(value)]
    return _functions_of(value)


def _functions_of(value: Any) -> list[types.FunctionType]:
    if isinstance(value, types.FunctionType):
        return [value]
    if isinstance(value, type) and is_followed(value.__module__):
        return [found for found in vars(value).values() if isinstance(found, types.FunctionType)]
    return []


def names_in(function: types.FunctionType) -> frozenset[str]:
    """Return the names in a function's code."""
    return _names_in_code(function.__code__)


@functools.lru_cache(maxsize=8192)
def _names_in_code(code: types.CodeType) -> frozenset[str]:
    return names_of(code) | (texts_of(code) & _DRAWING)  # the latter: getattr(torch, "rand")


#: Functions that write into buffers that they are given.
_WRITING_BUFFERS = frozenset({"batch_norm", "instance_norm", "register_buffer", "setattr"})
_KINDS = frozenset({"isinstance", "type", "is_tensor"})
#: Functions that set or delete attributes by their names.
_SETTING = frozenset({"setattr", "delattr", "__setattr__", "__delattr__"})


#: Methods that are called from outside, or by what a module's functions call.
_ENTRIES = frozenset({"forward", "__call__", "training_step", "validation_step"})


class CodeNames(NamedTuple):
    """Names of attributes in code; what is a text there may be one, too.

    `beside_types` are those in functions that ask for the types of values.
    """

    read: frozenset[str]
    stored: frozenset[str]
    beside_types: frozenset[str]


def written_names(modules: Iterable[torch.nn.Module]) -> frozenset[str]:
    """Collect the names in every method that a forward may reach, if it stores, or calls what may write in place.

    A wrong "written" costs memory only.
    """
    codes = _code_of(frozenset(type(module) for module in modules), frozenset(("forward", "__call__")))
    return frozenset().union(*map(_written_in, codes))


def names_in_code(modules: Iterable[torch.nn.Module], held: bool = True) -> CodeNames:
    """Collect the names in every method that a forward may reach.

    Args:
        held: functions that modules hold, as a loss, are such code, and call methods.
    """
    parts = list(modules)
    values = [value for part in parts for value in vars(part).values()] if held else []
    functions = [function for value in values if callable(value) for function in _functions(value)]
    functions += [inner for function in functions for inner in _closed_over(function)]
    codes = {code for function in functions for code in codes_of(function.__code__)}
    entries = _ENTRIES.union(*({*code.co_names, *texts_of(code)} for code in codes))
    found = _code_names(frozenset(type(part) for part in parts), entries)
    own = _names_of(codes)
    return CodeNames(*(a | b for a, b in zip(found, own, strict=True)))


@functools.lru_cache(maxsize=1024)
def _code_names(kinds: frozenset[Any], entries: frozenset[str]) -> CodeNames:
    return _names_of(_code_of(kinds, entries))


def _names_of(codes: Iterable[types.CodeType]) -> CodeNames:
    read, stored, beside_types = set[str](), set[str](), set[str]()
    for code in codes:
        texts = texts_of(code)
        names = {*code.co_names, *texts}
        read |= names
        stored |= stored_attributes(code) | (texts if not _SETTING.isdisjoint(code.co_names) else set())
        beside_types |= set() if _KINDS.isdisjoint(code.co_names) else names
    return CodeNames(frozenset(read), frozenset(stored), frozenset(beside_types))


@functools.lru_cache(maxsize=64)
def _code_of(kinds: frozenset[Any], entries: frozenset[str]) -> list[types.CodeType]:
    """List the code of the methods of these classes that have the name of an entry, or one in such code."""
    methods = _methods(kinds, (), torchs=True)
    waiting, seen = list(entries), set(entries)
    found: list[types.CodeType] = []
    while waiting:
        for function in methods.get(waiting.pop(), ()):
            found += codes_of(function.__code__)
            new = (names_of(function.__code__) | texts_of(function.__code__)) & methods.keys() - seen
            seen |= new
            waiting += new
    return found


@functools.lru_cache(maxsize=4096)
def _written_in(code: types.CodeType) -> frozenset[str]:
    steps, stored = dis.get_instructions(code), stored_attributes(code)
    names, texts = set(code.co_names), texts_of(code)
    writes = (
        any(name.endswith("_") and not name.endswith("__") for name in names)
        or any(step.opname == "STORE_SUBSCR" for step in steps)
        or not names.isdisjoint(_WRITING_BUFFERS)
        or "out" in texts
    )
    return stored | names | texts if writes else stored
