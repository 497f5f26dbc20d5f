# SPDX-License-Identifier: MIT
"""Kinds of values that an identity tells apart: a user's code and installed code, arrays, patches of torch."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import io
import pickle
import re
import sys
import sysconfig
import types
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any

from .._code import codes_of
from .._files import checksum
from .._lazy import numpy as np

_INSTALLED = tuple(
    {
        *(sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib", "platstdlib")),
        str(Path(__file__).parents[1]),
    }
)
_BEGIN = frozenset(("__init__", "__post_init__", "__setstate__", "__new__", "__set_name__", "__init_subclass__"))
CUT = "… "  # between the beginning of a text that is too long to be shown and the hash of all of it
_SHORT = 60  # characters of a text that is shown as it is
_SEED_BITS = 64  # of a number that somebody wrote; NumPy draws longer ones itself
_GENERATORS = ("Generator", "RandomState", "Random", "SystemRandom", "BitGenerator", "PCG64", "Lock", "RLock", "lock")


def short(text: str, shown: str | None = None) -> str:
    """Return a short text as it is, of a long one a hash; `shown` is what is shown of the text, if that is short."""
    shown = text if shown is None else shown
    if shown == text and len(text) <= _SHORT:
        return text
    kind = f"{shown.partition(' ')[0]} " if shown.startswith(("code ", "class ")) else f"{shown[:20]}{CUT}"
    return f"{kind}{checksum(text)}"


def item(place: str, key: Any) -> str:
    """Name the place of an item."""
    return f"{place}[{key!r}]" if isinstance(key, (str, int)) else place


def name_of(kind: type) -> str:
    """Name a class with its module."""
    return f"{kind.__module__}.{kind.__qualname__}"


def attribute(value: Any, name: str) -> Any:
    """Return an attribute; None where there is none, or where a user's `__getattr__` fails."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def functions_of(value: Any) -> list[tuple[types.FunctionType, bool]]:
    """Return the functions of a class's attribute, and True for those that run when the attribute is set."""
    found = [
        (attribute(value, name), name in ("fset", "fdel")) for name in ("fget", "fset", "fdel", "__func__", "func")
    ]
    return [(one, sets) for one, sets in [(value, False), *found] if isinstance(one, types.FunctionType)]


def beginning(kind: type) -> set[types.CodeType]:
    """Code of a class that runs when an object is made, and of methods that no other code of the class calls."""
    methods = {name: code for base in reversed(kind.__mro__) for name, value in vars(base).items()
               if isinstance(code := getattr(value, "__code__", None), types.CodeType)}  # fmt: skip
    begun = methods.keys() & _BEGIN
    while True:
        called = {one for name in begun for code in codes_of(methods[name]) for one in code.co_names}
        later = {one for name in methods.keys() - begun for code in codes_of(methods[name]) for one in code.co_names}
        more = (methods.keys() & called) - later - begun
        if not more:
            return {code for name in begun for code in codes_of(methods[name])}
        begun |= more


def overrides(kind: type, name: str) -> bool:
    """True if a class's method takes the place of one in an installed base, which calls it."""
    return any(name in vars(base) for base in kind.__mro__[1:] if base is not object and is_installed(base))


# -- whose it is ---------------------------------------------------------------------------------------------------


def is_users_code(function: types.FunctionType) -> bool:
    """True for a function in a file of the user's."""
    path = function.__code__.co_filename
    return not is_file_installed(path) and (not path.startswith("<") or is_users(function.__module__))


def is_file_installed(path: str) -> bool:
    """True for a file of Python or of an installed package."""
    return path.startswith((*_INSTALLED, "<frozen"))


def is_users(module: str) -> bool:
    """True for a module that is in no installed package and no part of Python.

    A script's `__main__` is the user's also in a process that the script's functions were sent to.
    """
    own, of_package = (getattr(sys.modules.get(name), "__file__", None) for name in (module, module.partition(".")[0]))
    if module == "__main__" or own is None:
        return module == "__main__"
    return not is_file_installed(own) and not is_file_installed(of_package or "")  # torch.ops has a file of no folder


def is_installed(kind: type) -> bool:
    """True for a class of Python's or of an installed package."""
    return not (is_users(kind.__module__) or kind.__module__ not in sys.modules)


def holds_attributes(value: Any) -> bool:
    """True for an object of the user's, or a bare namespace, of which code reads some attributes."""
    if isinstance(value, (type, types.ModuleType, types.FunctionType, types.MethodType, Mapping, list, tuple, Set)):
        return False
    if type(value).__name__ in ("Namespace", "SimpleNamespace"):
        return True
    return not is_installed(type(value)) and bool(own_values(value)) and attribute(value, "_parameters") is None


def own_values(value: Any) -> dict[str, Any]:
    """Attributes that an object has itself, but for those that it computes once and keeps."""
    own = dict(attribute(value, "__dict__") or {})
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                own[name] = getattr(value, name)
        for name, one in vars(kind).items():
            if isinstance(one, functools.cached_property):
                own.pop(name, None)
    return own


@functools.cache
def version_of(top: str) -> str | None:
    """Version of an installed package; None if it has none, as a module of Python's own."""
    module = sys.modules.get(top)
    version = attribute(module, "__version__")
    if isinstance(version, str):
        return version
    if not (attribute(module, "__file__") or "").startswith(sysconfig.get_path("purelib")):
        return None
    try:
        return importlib.metadata.version(top)
    except importlib.metadata.PackageNotFoundError:
        return None


def users_module(name: str) -> types.ModuleType | None:
    """Import a module of the user's, as code that names it does when it runs; None for another one.

    Raises:
        Exception: its own code fails.
    """
    if name not in sys.modules:
        try:
            parts = name.split(".")
            spec = importlib.util.find_spec(parts[0])
            path = spec and (spec.origin or next(iter(spec.submodule_search_locations or ()), None))
            if not path or path in ("built-in", "frozen") or is_file_installed(path):
                return None
            if importlib.util.find_spec(name) is None:
                return None
        except (ImportError, ValueError):
            return None
        importlib.import_module(name)
    return sys.modules[name] if is_users(name) else None


def compiled_from(function: types.FunctionType) -> Any:
    """Return the function that torch compiles when this one is called; None for another."""
    if "torch" not in sys.modules:
        return None
    from .._torch import compiled_from

    return compiled_from(function)


# -- what scripts put into torch -----------------------------------------------------------------------------------


def unwrapped(function: types.FunctionType) -> types.FunctionType:
    """Return what a function wraps in the end."""
    seen = [function]
    while isinstance(inner := attribute(seen[-1], "__wrapped__"), types.FunctionType) and inner not in seen:
        seen.append(inner)
    return seen[-1]


def patches() -> dict[str, Any]:
    """Functions that a script has put into torch in place of torch's own, by their names there.

    Layers and optimizers call them as well, so that it does not matter whether the code that was seen names them.
    """
    from .._torch import hooks_of_all, innermost_function_mode

    torch: Any = sys.modules["torch"]
    rooms = torch.nn, torch.optim, torch.optim.lr_scheduler, torch.utils.data
    kinds = {kind: None for room in rooms for _, kind in inspect.getmembers(room, inspect.isclass)}
    found = {
        f"{holder.__name__}.{name}": unwrapped(value)  # torch wraps an optimizer's step when one is made
        for holder in (torch, torch.nn.functional, torch.nn.init, torch.nn.utils, torch.Tensor, *kinds)
        for name, value in vars(holder).items()
        if isinstance(value, types.FunctionType) and is_users_code(unwrapped(value))
    }
    found |= {f"hook {number}": hook for number, hook in enumerate(hooks_of_all())}
    found |= {} if (mode := innermost_function_mode()) is None else {"function mode": mode}
    return found | {f"torch.nn.{name}": kind for name, kind in inspect.getmembers(torch.nn, inspect.isclass)
                    if kind.__name__ != name}  # fmt: skip


def operator_code(value: Any) -> list[Any] | bool | None:
    """Functions of an operator that a script has made, None if they cannot be had; False for what is no operator."""
    if "torch" not in sys.modules:
        return False
    from .._torch import code_of_operator, is_operator

    return is_operator(value) and code_of_operator(value)


def is_replaced(name: str, value: Any) -> bool:
    """True for a value that may stand under this name in an installed module because a script has put it there."""
    if operator_code(value) not in (False, []):
        return True
    if isinstance(value, types.FunctionType) and is_users_code(value):
        return True
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, type)):
        return value.__name__ != name or (isinstance(value, type) and not is_installed(value))
    return isinstance(value, (functools.partial, int, float, complex)) or not is_installed(type(value))


# -- values --------------------------------------------------------------------------------------------------------


def script_text(value: Any) -> str | None:
    """Graph of a function or module of `torch.jit`; None for anything else."""
    graph = attribute(value, "inlined_graph") if type(value).__module__.startswith("torch.jit") else None
    return None if graph is None else re.sub(r" # .*", "", str(graph))


def generator_text(value: Any) -> str | None:
    """Kind of a random generator or a lock, with the seed that it was given: its state moves. None for another."""
    kind = type(value).__name__
    if kind not in _GENERATORS:
        return None
    if type(value).__module__.startswith("torch"):
        return f"{kind} of seed {value.initial_seed()}"
    entropy = attribute(attribute(attribute(value, "bit_generator"), "seed_seq"), "entropy")
    return f"{kind} of seed {entropy}" if isinstance(entropy, int) and entropy < 2**_SEED_BITS else kind


def array_text(value: Any) -> str | None:
    """Kind, shape and a hash of all numbers of a tensor or an array; None for anything else."""
    kind = type(value)
    if kind.__module__ == "torch" and attribute(value, "untyped_storage") is None:
        return re.sub(r" at 0x[0-9a-f]+", "", repr(value))  # a dtype, a device, a layout
    shape, dtype = attribute(value, "shape"), attribute(value, "dtype")
    if shape is None or dtype is None or attribute(value, "__array__") is None:
        return None
    if attribute(dtype, "hasobject"):
        return None
    hashed = hashlib.blake2b(digest_size=8)
    try:
        if hasattr(value, "untyped_storage"):
            held = value.detach().cpu().contiguous().view(-1)
            hashed.update(held.view(sys.modules["torch"].uint8).numpy() if held.numel() else b"")
        else:
            hashed.update(np.ascontiguousarray(value).view(np.uint8).reshape(-1).data)
    except Exception:
        return None
    learns = attribute(value, "requires_grad")
    usual = isinstance(value, sys.modules["torch"].nn.Parameter) if "torch" in sys.modules else False
    note = "" if learns is None or learns == usual else " that learns" if learns else " frozen"
    return f"{kind.__name__} {dtype} {list(shape)} {hashed.hexdigest()}{note}"


def pickled(value: Any, told: Callable[[Any], str]) -> str:
    """Checksum of what pickle writes of a value, in which `told` gives texts of functions and of a user's classes."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, held: Any) -> str | None:
            is_code = isinstance(held, types.FunctionType) or (isinstance(held, type) and not is_installed(held))
            return told(held) if is_code else generator_text(held)

    file = io.BytesIO()
    Pickler(file, 4).dump(value)
    return checksum(file.getvalue())
