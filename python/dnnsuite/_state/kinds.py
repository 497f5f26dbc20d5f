# SPDX-License-Identifier: MIT
"""Kinds of values, and the way a walk looks at each; `register` adds one."""

from __future__ import annotations

import array
import collections
import collections.abc
import contextvars
import ctypes
import enum
import functools
import inspect
import io
import logging
import operator
import pathlib
import pickle
import random
import threading
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .walk import (
    HANDLERS,
    MOST,
    PLAIN,
    Handler,
    Path,
    Walk,
    _is_the_users,
    bare_dictionary,
    dictionary_of,
    handler_of,
    is_plain,
    look_at_object,
    mark,
    slots_in,
)

_MISSING = object()
_LOOKED_AT_BY_ELEMENTS = 64


def register(kind: type, handler: Handler) -> None:
    """Look at objects of `kind`, and of classes below it, by `handler(walk, value, at)`, which returns a snapshot that
    is hashable. It has `walk.look` for parts, `walk.watch` and `walk.watch_by` for what changes in place."""
    HANDLERS[kind] = handler
    handler_of.cache_clear()


def stands_by_identity(kind: type) -> bool:
    """Return True for a kind whose objects have nothing in them that code decides by, or nothing that changes."""
    return is_opaque(kind) or handler_of(kind) in _NOTHING_TO_RESTORE.values()


def is_opaque(kind: type) -> bool:
    """Return True for a kind whose objects are not looked into, such as locks, loggers and operators of torch's."""
    return handler_of(kind) in (_by_identity, _lock, _logger, _thread)


def _by_identity(walk: Walk, value: Any, at: Path) -> Any:
    return walk.identity(value)


def _tensor(walk: Walk, value: Any, at: Path) -> Any:
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return walk.identity(value)
    layout = walk.watch_memory(value) if value.layout == torch.strided else ()
    if not vars(value):  # some may come
        walk.watch(vars(value), {})
    attributes = walk.attributes(value, (*at, 2)) if vars(value) else ()
    return walk.identity(value), layout, attributes, _named_parts(walk, value, (*at, 3))


def _named_parts(walk: Walk, value: torch.Tensor, at: Path) -> Any:
    """Look at what Python makes of a tensor only where code asks for it by name."""
    names = walk.names or frozenset()
    grad = walk.watch_by(lambda: value.grad, by_identity=True) if "grad" in names and value.is_leaf else None
    version = walk.watch_by(lambda: value._version) if "_version" in names and not value.is_inference() else None
    return walk.look(grad, ".grad", at), version


def _code(walk: Walk, value: Any, at: Path) -> Any:
    walk.code.append(value)
    code = walk.watch_by(lambda: value.__code__, by_identity=True)
    attributes = walk.attributes(value, (*at, 2), all_names=True)
    return walk.identity(value), walk.identity(code), attributes, _descriptions(walk, value, (*at, 3))


DESCRIPTIONS = ("__annotations__", "__doc__", "__module__", "__name__", "__qualname__")


def _descriptions(walk: Walk, value: Any, at: Path) -> Any:
    """Look at what a function or class says of itself, where code names it."""
    named = [name for name in DESCRIPTIONS if name in (walk.names or ())]
    return tuple(
        walk.look(walk.watch_by(functools.partial(getattr, value, name, None), by_identity=True), f".{name}", (*at, n))
        for n, name in enumerate(named)
    )


def _plain_with_attributes(walk: Walk, value: Any, at: Path) -> Any:
    walk.plain((value,))
    return value, walk.attributes(value, (*at, 1))


def _enum(walk: Walk, value: Any, at: Path) -> Any:
    return walk.identity(value), walk.attributes(value, (*at, 1))


def _lock(walk: Walk, value: Any, at: Path) -> Any:
    return walk.identity(value), walk.watch_by(value.locked)


def _thread(walk: Walk, value: threading.Thread, at: Path) -> Any:
    return walk.identity(value), walk.watch_by(lambda: (value.name, value.is_alive()))


def _method(walk: Walk, value: Any, at: Path) -> Any:
    walk.code.append(value)
    return walk.look(value.__func__, "", (*at, 0)), walk.look(value.__self__, "", (*at, 1))


def _builtin(walk: Walk, value: Any, at: Path) -> Any:
    owner = value.__self__
    if owner is None or isinstance(owner, (types.ModuleType, type)):
        return walk.identity(value)
    return value.__name__, walk.look(owner, "", (*at, 1))


def _cached(walk: Walk, value: Any, at: Path) -> Any:
    walk.code.append(value)
    code = getattr(value.__wrapped__, "__code__", None)
    if code is not None and code.co_varnames[: code.co_argcount][:1] == ("self",):  # a copy of its object finds nothing
        return walk.stop(value, "the cache of a method")
    return walk.identity(value), walk.watch_by(functools.partial(_times_cleared, value))


_cleared: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()


def _times_cleared(cache: Any) -> int:
    """Count how often a cache of results was emptied, as far as its misses tell; a step that fills it changes nothing
    for later ones."""
    misses, known = cache.cache_info().misses, _cleared.setdefault(cache, [0, 0])
    known[1] += misses < known[0]
    known[0] = misses
    return known[1]


def _all_plain(values: Any) -> bool:
    return all(map(is_plain, values))


def _sequence(walk: Walk, value: Any, at: Path) -> Any:
    kind = type(value)
    if len(value) > MOST:
        return walk.stop(value, f"a {kind.__name__} of {len(value)} elements")
    bare: Any = next(base for base in (list, tuple, collections.deque) if isinstance(value, base))
    if bare is not tuple:
        walk.watch(value, bare(bare.__iter__(value)))
    if len(value) > _LOOKED_AT_BY_ELEMENTS and _all_plain(bare.__iter__(value)):
        found: Any = tuple(bare.__iter__(value))
        walk.plain(found)
    else:
        found = walk.parts(bare.__iter__(value), at if kind is bare else (*at, 0), None if bare is tuple else value)
    return found if kind is bare else (found, walk.attributes(value, (*at, 1)))


def _mapping(walk: Walk, value: Any, at: Path) -> Any:
    kind = type(value)
    if len(value) > MOST:
        return walk.stop(value, f"a {kind.__name__} of {len(value)} elements")
    bare = bare_dictionary(value)
    walk.watch(value, dict(bare.items(value)))
    walk.watch_by(lambda: tuple(bare.__iter__(value)))  # dictionaries are equal in any order
    if len(value) > _LOOKED_AT_BY_ELEMENTS and _all_plain(dict.values(value)) and _all_plain(dict.keys(value)):
        found: Any = tuple(bare.items(value))
        walk.plain(part for item in found for part in item)
    else:
        found = walk.items(value, at if kind is dict else (*at, 0))
    if kind is dict:
        return found
    makes_missing = (
        walk.watch_by(lambda: value.default_factory, True) if isinstance(value, collections.defaultdict) else None
    )
    return found, walk.attributes(value, (*at, 1)), walk.look(makes_missing, ".default_factory", (*at, 2))


def _set(walk: Walk, value: Any, at: Path) -> Any:
    if len(value) > MOST:
        return walk.stop(value, f"a set of {len(value)} elements")
    walk.watch(value, set(value))
    if _all_plain(value):
        found: Any = "set", frozenset(value), frozenset(map(mark, value))
    else:
        found = "set", frozenset(walk.look(part, "{...}", (*at, 1)) for part in value)
    return _with_attributes(walk, value, at, found)


def _array(walk: Walk, value: np.ndarray[Any, Any], at: Path) -> Any:
    if value.size > MOST:
        return walk.stop(value, f"an array of {value.size} elements")
    if value.dtype.hasobject:
        walk.watch_by(lambda: list(map(id, value.flat)))
        found: Any = value.shape, walk.parts(value.flat, (*at, 1))
    else:
        found = walk.watch_by(lambda: (value.shape, value.dtype, value.tobytes()))
    return _with_attributes(walk, value, at, found)


def _buffer(walk: Walk, value: Any, at: Path) -> Any:
    if memoryview(value).nbytes > MOST:
        return walk.stop(value, f"a {type(value).__name__} of {memoryview(value).nbytes} bytes")
    return _with_attributes(walk, value, at, walk.watch_by(functools.partial(_numbers_in, value)))


def _numbers_in(value: Any) -> Any:
    """Read a buffer: the same bytes are other numbers in another format."""
    memory = memoryview(value)
    return memory.format, memory.shape, memory.tobytes()


def _with_attributes(walk: Walk, value: Any, at: Path, found: Any) -> Any:
    """Add what an object of a user's class has beside the content of its base."""
    kind: Any = type(value)
    bare = dictionary_of(value) is None and not slots_in(kind)
    return found if bare else (found, walk.attributes(value, (*at, 1)))


def _logger(walk: Walk, value: logging.Logger, at: Path) -> Any:
    """Look at what decides whether a message is logged: code makes more of it, such as statistics, where it is."""
    walk.watch_by(lambda: list(map(id, _of_its_users(value))))
    users = walk.look(_of_its_users(value), "", (*at, 1))
    return walk.identity(value), walk.watch_by(lambda: _what_is_logged(value)), users


def _of_its_users(logger: logging.Logger) -> tuple[Any, ...]:
    """List what users have set on a logger, or a class of theirs; what the library notes there is no state of theirs,
    such as what was asked of the logger before."""
    return tuple(part for item in vars(logger).items() if item[0] not in _OF_LOGGERS for part in item)


_OF_LOGGERS = frozenset((*vars(logging.Logger("")), "root", "manager"))


def _what_is_logged(logger: logging.Logger) -> tuple[int, bool, int]:
    return logger.getEffectiveLevel(), logger.disabled, logger.manager.disable


def _content(walk: Walk, value: Any, at: Path) -> Any:
    """Look at an object by what is read from it, which can be written back."""
    read = next(CONTENTS[base][0] for base in type(value).__mro__ if base in CONTENTS)
    return walk.identity(value), walk.watch_by(lambda: hash(read(value)))


def _of_legacy(value: Any) -> Any:
    kind, words, *rest = value.get_state()
    return kind, words.tobytes(), *rest


def _set_legacy(value: np.random.RandomState, content: Any) -> None:
    value.set_state((content[0], np.frombuffer(content[1], np.uint32), *content[2:]))


def _of_c(value: Any) -> bytes:
    return bytes(memoryview(value).cast("B"))


def _set_of_c(value: Any, content: bytes) -> None:
    ctypes.memmove(ctypes.addressof(value), content, len(content))


_SIMPLE_OF_C = ctypes.c_int.__mro__[1]
#: Kinds of objects that are told by one content, as bytes or the like: what reads it, and what writes it.
CONTENTS: dict[type, tuple[Callable[[Any], Any], Callable[[Any, Any], object]]] = {
    **dict.fromkeys((_SIMPLE_OF_C, ctypes.Array, ctypes.Structure, ctypes.Union), (_of_c, _set_of_c)),
    random.Random: (lambda value: value.getstate(), lambda value, content: value.setstate(content)),
    np.random.Generator: (
        lambda value: pickle.dumps(value.bit_generator.state),
        lambda value, content: setattr(value.bit_generator, "state", pickle.loads(content)),
    ),
    np.random.RandomState: (_of_legacy, _set_legacy),
    torch.Generator: (
        lambda value: value.get_state().numpy().tobytes(),
        lambda value, content: value.set_state(torch.frombuffer(bytearray(content), dtype=torch.uint8)),
    ),
}


def _variable(walk: Walk, value: Any, at: Path) -> Any:
    now = walk.watch_by(lambda: value.get(_MISSING), by_identity=True)
    return walk.identity(value), None if now is _MISSING else walk.look(now, ".get()", (*at, 1))


def _namespace(walk: Walk, value: Any, at: Path) -> Any:
    """Look at a class or a module of the user's: at the values that code names."""
    walk.code.append(value)
    found: list[Any] = []
    if isinstance(value, type):
        for base in value.__mro__:
            if _is_the_users(base):
                walk.of_class(base, found, (*at, 1), walk.names)
    return walk.identity(value), tuple(found), _descriptions(walk, value, (*at, 2))


def is_at_rest(generator: types.GeneratorType[Any, Any, Any]) -> bool:
    """Return True for a generator that has not begun, as in a decorator of `contextlib`, or has ended."""
    return inspect.getgeneratorstate(generator) in (inspect.GEN_CREATED, inspect.GEN_CLOSED)


def _generator(walk: Walk, value: types.GeneratorType[Any, Any, Any], at: Path) -> Any:
    if not walk.watch_by(lambda: is_at_rest(value)):
        return walk.stop(value, "an iterator (generator)")
    given = {} if value.gi_frame is None else value.gi_frame.f_locals
    return walk.identity(value), walk.look(tuple(given.items()), "", (*at, 1))


def _file(walk: Walk, value: Any, at: Path) -> Any:
    if not value.closed and value.readable():
        return walk.stop(value, "an open file")
    return walk.identity(value)  # what is written into it is nobody's number


def _reference(walk: Walk, value: Any, at: Path) -> Any:
    walk.watch_by(lambda: value() is None)
    return "reference", walk.look_weakly(value(), (*at, 1))


def _error(walk: Walk, value: Any, at: Path) -> Any:
    held = walk.watch_by(lambda: value.args, by_identity=True)
    return walk.identity(value), walk.look(held, ".args", (*at, 1)), walk.attributes(value, (*at, 2))


def _getter(walk: Walk, value: Any, at: Path) -> Any:
    walk.code.append(value)  # it reads attributes whose names no code has
    return value.__reduce__()


def _read_only(walk: Walk, value: Any, at: Path) -> Any:
    walk.watch(value, dict(value))
    return "mapping", walk.look(tuple(value.items()), "", (*at, 1))  # none of it can be replaced here


def look_at_module(walk: Walk, value: torch.nn.Module, at: Path) -> Any:
    """Look at a module that is no part of an array: flags and attributes, hooks, and which tensors it has."""
    return walk.identity(value), walk.attributes(value, (*at, 1), all_names=True)


_OPERATOR = type(torch.ops.aten.add.Tensor).__mro__[1]  # those of higher order, too
_ANNOTATIONS = {
    *(types.UnionType, types.GenericAlias, typing.TypeVar, typing.ForwardRef, inspect.Parameter, inspect.Signature),
    *(type(one) for one in (typing.List[int], typing.Union[int, str], typing.Callable[..., int], typing.Any)),  # noqa: UP006, UP007
} - {type}  # fmt: skip
_CLASSES_SEEN = type(vars(collections.abc.Sized)["_abc_impl"])  # what an abstract class remembers of `isinstance`
#: Kinds whose objects may change inside, if at all, in what they hold, which is restored for itself.
_NOTHING_TO_RESTORE: dict[Any, Handler] = {
    **dict.fromkeys(PLAIN, _plain_with_attributes),
    **dict.fromkeys((operator.attrgetter, operator.itemgetter, operator.methodcaller), _getter),
    slice: lambda walk, value, at: ("slice", walk.look((value.start, value.stop, value.step), "", (*at, 1))),
    pathlib.PurePath: lambda walk, value, at: (type(value), str(value)),
    type(functools.lru_cache(len)): _cached,
    **dict.fromkeys(
        (classmethod, staticmethod),
        lambda walk, value, at: (walk.identity(value), walk.look(value.__func__, "", (*at, 1))),
    ),
    weakref.ref: _reference,
    **dict.fromkeys(
        weakref.ProxyTypes, lambda walk, value, at: ("proxy", walk.look_weakly(value.__repr__.__self__, (*at, 1)))
    ),
    **dict.fromkeys(
        (type({}.keys()), type({}.values()), type({}.items())),
        lambda walk, value, at: (type(value).__name__, walk.look(value.mapping, "", (*at, 1))),
    ),
    types.MappingProxyType: _read_only,
    BaseException: _error,
}
HANDLERS.update({
    object: look_at_object,
    **dict.fromkeys(
        (
            *(torch.UntypedStorage, torch.jit.ScriptModule, types.CodeType),
            *(_OPERATOR, type(torch.ops.aten.add), logging.Handler, type(threading.RLock()), _CLASSES_SEEN),
            *(types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType),
            *_ANNOTATIONS,
        ),
        _by_identity,
    ),
    **_NOTHING_TO_RESTORE,
    **dict.fromkeys((list, tuple, collections.deque), _sequence),
    **dict.fromkeys((set, frozenset), _set),
    **dict.fromkeys((type, types.ModuleType), _namespace),
    **dict.fromkeys((bytearray, array.array, memoryview), _buffer),
    **dict.fromkeys((types.BuiltinFunctionType, type([].__len__)), _builtin),
    **dict.fromkeys(CONTENTS, _content),
    random.SystemRandom: lambda walk, value, at: walk.stop(value, "a generator of the system's random numbers"),
    dict: _mapping,
    enum.Enum: _enum,
    type(threading.Lock()): _lock,
    threading.Thread: _thread,
    logging.Logger: _logger,
    torch.Tensor: _tensor,
    types.GeneratorType: _generator,
    types.FunctionType: _code,
    types.MethodType: _method,
    functools.partial: lambda walk, value, at: tuple(
        walk.look(getattr(value, name), f".{name}", (*at, n)) for n, name in enumerate(("func", "args", "keywords"))
    ),
    np.ndarray: _array,
    contextvars.ContextVar: _variable,
    io.IOBase.__base__ or io.IOBase: _file,
    torch.nn.Module: look_at_module,
})  # fmt: skip
