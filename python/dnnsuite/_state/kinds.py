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
import random
import threading
import types
import typing
import weakref
from collections.abc import Iterable
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
    return handler_of(kind) in _NOTHING_TO_RESTORE


def is_opaque(kind: type) -> bool:
    """Return True for a kind whose objects are not looked into, such as locks, loggers and operators of torch's."""
    return handler_of(kind) in (_by_identity, _logger)


def _by_identity(walk: Walk, value: Any, at: Path) -> Any:
    return walk.identity(value)


def _tensor(walk: Walk, value: Any, at: Path) -> Any:
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return walk.identity(value)
    layout = walk.watch_memory(value) if value.layout == torch.strided else ()
    return walk.identity(value), layout, walk.attributes(value, (*at, 1)) if vars(value) else ()


def _code(walk: Walk, value: Any, at: Path) -> Any:
    walk.code.append(value)
    code = walk.watch_by(lambda: value.__code__, by_identity=True)
    return walk.identity(value), walk.identity(code), walk.attributes(value, (*at, 1), all_names=True)


def _method(walk: Walk, value: Any, at: Path) -> Any:
    walk.code.append(value)
    return walk.look(value.__func__, "", (*at, 0)), walk.look(value.__self__, "", (*at, 1))


def _builtin(walk: Walk, value: Any, at: Path) -> Any:
    owner = value.__self__
    if owner is None or isinstance(owner, (types.ModuleType, type)):
        return walk.identity(value)
    return value.__name__, walk.look(owner, "", (*at, 1))


def _wrapped(walk: Walk, value: Any, at: Path) -> Any:
    return walk.identity(value), walk.look(value.__func__, "", (*at, 1))


def _partial(walk: Walk, value: Any, at: Path) -> Any:
    function, held, named = value.func, value.args, value.keywords
    parts = (walk.look(function, ".func", (*at, 0)), walk.look(held, ".args", (*at, 1)))
    return (*parts, walk.look(named, ".keywords", (*at, 2)))


def _cached(walk: Walk, value: Any, at: Path) -> Any:
    walk.code.append(value.__wrapped__)
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
    return all(issubclass(kind, PLAIN) for kind in set(map(type, values)))


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
    return found if kind is dict else (found, walk.attributes(value, (*at, 1)))


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


def _of_c(walk: Walk, value: Any, at: Path) -> Any:
    return walk.watch_by(lambda: bytes(memoryview(value).cast("B"))), walk.identity(value)


def _variable(walk: Walk, value: Any, at: Path) -> Any:
    now = walk.watch_by(lambda: value.get(_MISSING), by_identity=True)
    return walk.identity(value), None if now is _MISSING else walk.look(now, ".get()", (*at, 1))


def _reference(walk: Walk, value: Any, at: Path) -> Any:
    walk.watch_by(lambda: value() is None)
    return "reference", walk.look_weakly(value(), (*at, 1))


def _proxy(walk: Walk, value: Any, at: Path) -> Any:
    return "proxy", walk.look_weakly(value.__repr__.__self__, (*at, 1))


def _generator_of_numbers(read: Any) -> Handler:
    def look(walk: Walk, value: Any, at: Path) -> Any:
        return walk.identity(value), walk.watch_by(lambda: hash(read(value)))

    return look


def _entropy(walk: Walk, value: Any, at: Path) -> Any:
    return walk.stop(value, "a generator of the system's random numbers")


def _state_of_random(value: Any) -> Any:
    return value.getstate()


def _state_of_generator(value: Any) -> Any:
    return repr(value.bit_generator.state)


def _state_of_random_state(value: Any) -> Any:
    kind, words, *rest = value.get_state()
    return kind, words.tobytes(), *rest


def _state_of_torch(value: Any) -> Any:
    return value.get_state().numpy().tobytes()


def _namespace(walk: Walk, value: Any, at: Path) -> Any:
    """Look at a class or a module of the user's: at the values that code names."""
    walk.code.append(value)
    found: list[Any] = []
    if isinstance(value, type):
        for base in value.__mro__:
            if _is_the_users(base):
                walk.of_class(base, found, (*at, 1), walk.names)
    return walk.identity(value), tuple(found)


def is_at_rest(generator: types.GeneratorType[Any, Any, Any]) -> bool:
    """Return True for a generator that has not begun, as in a decorator of `contextlib`, or has ended."""
    return inspect.getgeneratorstate(generator) in (inspect.GEN_CREATED, inspect.GEN_CLOSED)


def _generator(walk: Walk, value: types.GeneratorType[Any, Any, Any], at: Path) -> Any:
    if not walk.watch_by(lambda: is_at_rest(value)):
        return walk.stop(value, "an iterator (generator)")
    given = {} if value.gi_frame is None else value.gi_frame.f_locals
    return walk.identity(value), walk.look(dict(given), "", (*at, 1))


def _file(walk: Walk, value: Any, at: Path) -> Any:
    if not value.closed and value.readable():
        return walk.stop(value, "an open file")
    return walk.identity(value)  # what is written into it is nobody's number


def _slice(walk: Walk, value: Any, at: Path) -> Any:
    return "slice", walk.look((value.start, value.stop, value.step), "", (*at, 1))


def _path(walk: Walk, value: Any, at: Path) -> Any:
    return type(value), str(value)


def _error(walk: Walk, value: Any, at: Path) -> Any:
    held = walk.watch_by(lambda: value.args, by_identity=True)
    return walk.identity(value), walk.look(held, ".args", (*at, 1)), walk.attributes(value, (*at, 2))


def _getter(walk: Walk, value: Any, at: Path) -> Any:
    return value.__reduce__()


def _view(walk: Walk, value: Any, at: Path) -> Any:
    return type(value).__name__, walk.look(value.mapping, "", (*at, 1))


def _read_only(walk: Walk, value: Any, at: Path) -> Any:
    walk.watch(value, dict(value))
    return "mapping", walk.look(dict(value), "", (*at, 1))


def look_at_module(walk: Walk, value: torch.nn.Module, at: Path) -> Any:
    """Look at a module that is no part of an array: flags and attributes, hooks, and which tensors it has."""
    return walk.identity(value), walk.attributes(value, (*at, 1), all_names=True)


def _register_each(kinds: Iterable[Any], handler: Handler) -> None:
    for kind in kinds:
        register(kind, handler)


_OPERATOR = type(torch.ops.aten.add.Tensor).__mro__[1]  # those of higher order, too
_SIMPLE_OF_C = ctypes.c_int.__mro__[1]
_ANNOTATIONS = {
    *(types.UnionType, types.GenericAlias, typing.TypeVar, typing.ForwardRef, inspect.Parameter, inspect.Signature),
    *(type(one) for one in (typing.List[int], typing.Union[int, str], typing.Callable[..., int], typing.Any)),  # noqa: UP006, UP007
} - {type}  # fmt: skip
_CLASSES_SEEN = type(vars(collections.abc.Sized)["_abc_impl"])  # what an abstract class remembers of `isinstance`

register(object, look_at_object)
_register_each(
    (
        *(torch.UntypedStorage, torch.jit.ScriptModule, types.CodeType),
        *(_OPERATOR, type(torch.ops.aten.add), threading.Thread, enum.Enum),
        *(logging.Handler, type(threading.Lock()), type(threading.RLock()), _CLASSES_SEEN),
        *(types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType),
        *_ANNOTATIONS,
    ),
    _by_identity,
)
_register_each((list, tuple, collections.deque), _sequence)
_register_each((set, frozenset), _set)
_register_each((type, types.ModuleType), _namespace)
_register_each((bytearray, array.array, memoryview), _buffer)
_register_each((_SIMPLE_OF_C, ctypes.Array, ctypes.Structure, ctypes.Union), _of_c)
_register_each(weakref.ProxyTypes, _proxy)
_register_each((operator.attrgetter, operator.itemgetter, operator.methodcaller), _getter)
_register_each((type({}.keys()), type({}.values()), type({}.items())), _view)
register(dict, _mapping)
register(logging.Logger, _logger)
register(torch.Tensor, _tensor)
register(types.MappingProxyType, _read_only)
register(types.GeneratorType, _generator)
register(types.FunctionType, _code)
register(types.MethodType, _method)
_register_each((classmethod, staticmethod), _wrapped)
register(types.BuiltinFunctionType, _builtin)
register(type([].__len__), _builtin)
register(functools.partial, _partial)
register(type(functools.lru_cache(len)), _cached)
register(np.ndarray, _array)
register(contextvars.ContextVar, _variable)
register(weakref.ref, _reference)
register(random.Random, _generator_of_numbers(_state_of_random))
register(random.SystemRandom, _entropy)
register(np.random.Generator, _generator_of_numbers(_state_of_generator))
register(np.random.RandomState, _generator_of_numbers(_state_of_random_state))
register(torch.Generator, _generator_of_numbers(_state_of_torch))
register(slice, _slice)
register(pathlib.PurePath, _path)
register(BaseException, _error)
register(io.IOBase.__base__ or io.IOBase, _file)
register(torch.nn.Module, look_at_module)
_NOTHING_TO_RESTORE = frozenset(
    (
        *(_by_identity, _logger, _getter, _slice, _path, _cached, _wrapped),
        *(_reference, _proxy, _view, _read_only, _error),
    )
)
