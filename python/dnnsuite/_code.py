# SPDX-License-Identifier: MIT
"""Facts of code objects from their instructions, without running them: names, what they change, loops and branches.

Code keeps state under a name when it sets the name, sets or deletes an item of what the name holds, or calls a method
that changes a container: `self.seen = 3`, `cache[key] = value`, `counts[part].append(1)`. Each instruction's operands
are followed back, on the stack and through local variables, to the names that they were read from. Branches are read
one after the other, as they stand in the code: what they leave on the stack lies below what is looked at.
"""

from __future__ import annotations

import collections
import contextlib
import dis
import functools
import importlib.util
import re
import types
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_BRANCHES = frozenset(name for name in dis.opmap if "JUMP" in name and "_IF_" in name and "EXC" not in name)
_BY_NAME = frozenset(("getattr", "hasattr"))
_ALL = frozenset(
    ("dir", "vars", "__dict__", "attrgetter", "asdict", "astuple", "__getattribute__", "getmembers", "deepcopy")
)
_FORMATS, _FIELDS = frozenset(("format", "format_map", "vformat")), re.compile(r"\{[^{}]*[.\[]")  # "{0.scale}"
_CALLS = ("PRECALL", "CALL", "CALL_FUNCTION")
#: Methods that change a list, dict, set, deque, bytearray, or a class like them.
_MUTATORS = frozenset((
    "append", "appendleft", "extend", "extendleft", "insert", "add", "update", "setdefault", "subtract",
    "pop", "popleft", "popitem", "clear", "remove", "discard", "rotate", "sort", "reverse", "__setitem__",
    "__delitem__", "move_to_end", "difference_update", "intersection_update",
))  # fmt: skip
_SETS_NAME = frozenset(("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME", "STORE_DEREF", "DELETE_DEREF"))
_SETS_ATTRIBUTE = frozenset(("STORE_ATTR", "DELETE_ATTR"))
_ITEMS = {"STORE_SUBSCR": -2, "DELETE_SUBSCR": -2, "STORE_SLICE": -3}  # where the container lies on the stack
_LOADS = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"))
_ATTRIBUTES = frozenset(("LOAD_ATTR", "LOAD_METHOD"))
_CONTAINERS = (list, dict, set, bytearray, collections.deque)
_LOOK_UP = frozenset(("get", "pop", "setdefault", "__getitem__"))
_CALL = "PRECALL" if "PRECALL" in dis.opmap else "CALL"
SELF = "<self>"  # root of what is reached from a function's first argument
_REAL = 256  # opcodes below are instructions; those of a compiler, beyond, have no effect on the stack


class Change(NamedTuple):
    """A place whose value code changes.

    Attributes:
        root: global or variable of an enclosing function that the place was reached from; `SELF` for the first
            argument, empty for another or a result.
        name: last name on the way: the root itself, or an attribute.
    """

    root: str
    name: str


_NOTHING, _TEXT = Change("", ""), Change("", "a constant text")


def codes_of(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield code, and that of all functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_of(constant)


def keeps_state(function: types.FunctionType) -> bool:
    """Return True if a call may leave something in the function that the next one sees: in variables that it closes
    over, or in containers that are defaults."""
    free = frozenset(function.__code__.co_freevars)
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    return any(isinstance(value, _CONTAINERS) for value in defaults) or any(
        change.root in free for code in codes_of(function.__code__) for change in changes_of(code)
    )


def changes_of(code: types.CodeType) -> frozenset[Change]:
    """Return the places that the code changes.

    Functions inside it do not count. Local variables do not, but for what they were read from.
    """
    return _followed(code)[0]


def looked_up(code: types.CodeType) -> frozenset[str]:
    """Return the last name of every container of which the code reads an item by a key that is no constant text."""
    return frozenset(place.name for place in _followed(code)[1])


@functools.lru_cache(maxsize=4096)
def _followed(code: types.CodeType) -> tuple[frozenset[Change], frozenset[Change]]:
    """Return (places that the code changes, places that it looks items up in)."""
    inner = frozenset(code.co_varnames) | frozenset(code.co_cellvars)
    changed: set[Change] = set()
    keyed: set[Change] = set()
    stack: list[Change] = []  # where each value was read from
    local = {name: Change(SELF, SELF) for name in code.co_varnames[: min(1, code.co_argcount)]}

    def at(place: int) -> Change:
        return stack[place] if len(stack) >= -place else _NOTHING

    for step in dis.get_instructions(code):
        kind, value, depth = step.opname, step.argval, step.arg or 0
        if kind in _SETS_NAME and value not in inner:
            changed.add(Change(value, value))
        elif kind in _SETS_ATTRIBUTE:
            changed.add(Change(at(-1).root, value))
        elif kind in _ITEMS:
            changed.add(at(_ITEMS[kind]))
        elif kind in _ATTRIBUTES and value in _MUTATORS:
            changed.add(at(-1))
        elif kind == "BINARY_SUBSCR" or (kind == "BINARY_OP" and step.argrepr == "[]"):
            keyed |= {at(-2)} if at(-1) is not _TEXT else set()
        elif kind == _CALL and depth and at(-depth - 1).name in _LOOK_UP and at(-depth) is not _TEXT:
            keyed.add(at(-depth - 2))
        elif kind in ("SWAP", "ROT_TWO") and len(stack) >= (depth := depth or 2):
            stack[-1], stack[-depth] = stack[-depth], stack[-1]
            continue
        elif kind in ("ROT_THREE", "ROT_FOUR") and len(stack) >= (depth := 3 + (kind == "ROT_FOUR")):
            stack.insert(-depth + 1, stack.pop())
            continue
        elif kind.startswith("STORE_FAST"):
            names = value if isinstance(value, tuple) else (value,)
            local[names[0]] = at(-1)
            if kind == "STORE_FAST_STORE_FAST":
                local[names[1]] = at(-2)
        elif kind == "STORE_DEREF":
            local[value] = at(-1)
        operands = stack[-3:]
        effect = dis.stack_effect(step.opcode, step.arg, jump=False) if step.opcode < _REAL else 0
        if effect < 0:
            del stack[effect:]
        stack += [_NOTHING] * max(effect, 0)
        top: Sequence[Change] = ()
        if kind == "COPY":
            top = [*[_NOTHING] * depth, *operands][-depth:][:1]
        elif kind in ("DUP_TOP", "FOR_ITER"):  # an item of a container is a part of it
            top = operands[-1:]
        elif kind == "DUP_TOP_TWO":
            top = operands[-2:]
        elif kind == "LOAD_CONST" and isinstance(value, str):
            top = [_TEXT]
        elif kind in _LOADS:
            top = [local.get(value, _NOTHING) if value in inner else Change(value, value)]
        elif "LOAD_FAST" in kind:
            names = value if isinstance(value, tuple) else (value,)
            top = [local.get(name, _NOTHING) for name in names[kind.startswith("STORE") :]]
        elif kind in _ATTRIBUTES:
            top = [Change(operands[-1].root if operands else "", value)]
        elif kind == "BINARY_SUBSCR" or (kind == "BINARY_OP" and step.argrepr == "[]"):
            top = operands[-2:-1]
        elif kind == "BINARY_SLICE":
            top = operands[-3:-2]
        elif effect < 0 and not kind.startswith(("STORE", "DELETE", "POP", "JUMP")):
            top = [_NOTHING]  # a result takes the place of operands
        for place, read in enumerate(reversed(top), 1):
            if len(stack) >= place:
                stack[-place] = read
    return frozenset(changed - {_NOTHING, _TEXT, Change(SELF, SELF)}), frozenset(keyed - {_NOTHING, _TEXT})


@functools.lru_cache(maxsize=4096)
def names_of(code: types.CodeType) -> frozenset[str]:
    """Collect the names of globals and attributes in code, and in functions inside it."""
    return frozenset(name for one in codes_of(code) for name in one.co_names)


@functools.lru_cache(maxsize=4096)
def globals_of(code: types.CodeType) -> frozenset[str]:
    """Collect the names that code, and functions inside it, look up among globals and Python's own names."""
    steps = (step for one in codes_of(code) for step in dis.get_instructions(one))
    return frozenset(step.argval for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"))


@functools.lru_cache(maxsize=4096)
def texts_of(code: types.CodeType) -> frozenset[str]:
    """Collect the texts in code, and in functions inside it: they may be names, as in `getattr(config, "scale")`."""
    return frozenset(
        text
        for one in codes_of(code)
        for constant in one.co_consts
        for text in (constant if isinstance(constant, tuple) else (constant,))
        if isinstance(text, str)
    )


@functools.lru_cache(maxsize=4096)
def stored_attributes(code: types.CodeType) -> frozenset[str]:
    """Collect the attributes that code sets or deletes, without functions inside it."""
    steps = dis.get_instructions(code)
    return frozenset(step.argval for step in steps if step.opname in ("STORE_ATTR", "DELETE_ATTR"))


@functools.lru_cache(maxsize=4096)
def imports_of(code: types.CodeType, package: str) -> frozenset[str]:
    """Collect the names of what code of a `package` may import when it runs: modules, and what it takes from one."""
    found: set[str] = set()
    for one in codes_of(code):
        steps = [step for step in dis.get_instructions(one) if step.opname not in ("CACHE", "EXTENDED_ARG")]
        for number, step in enumerate(steps):
            if step.opname == "IMPORT_NAME":
                level, names = steps[number - 2].argval, steps[number - 1].argval
                with contextlib.suppress(ImportError, TypeError, ValueError):  # outside of a package it says from where
                    name = importlib.util.resolve_name("." * int(level or 0) + str(step.argval), package)
                    found |= {name, *(f"{name}.{each}" for each in names or () if each != "*")}
        if {"import_module", "__import__"} & set(one.co_names):
            found |= {text for text in texts_of(one) if all(part.isidentifier() for part in text.split("."))}
    return frozenset(found)


@functools.lru_cache(maxsize=4096)
def branches(code: types.CodeType) -> bool:
    """Return True if code goes one way or another by a value."""
    return any(step.opname in _BRANCHES for step in dis.get_instructions(code))


@functools.lru_cache(maxsize=256)
def loops_in(code: types.CodeType) -> list[tuple[int, int]]:
    """List where the loops of a function begin and end, in its bytecode: each ends with a jump back."""
    jumps = (one for one in dis.get_instructions(code) if one.opcode in _JUMPS)
    return [(one.argval, one.offset) for one in jumps if one.argval < one.offset]


@functools.lru_cache(maxsize=4096)
def line_of(code: types.CodeType, name: str) -> int | None:
    """Find the first line of code that uses a name."""
    line = code.co_firstlineno
    for step in dis.get_instructions(code):
        line = step.starts_line if isinstance(step.starts_line, int) and step.starts_line > 1 else line
        if step.argval == name:
            return line
    return None


def content_of(cell: types.CellType, missing: Any = None) -> Any:
    """Return what a variable of an enclosing function holds; `missing` where nothing is assigned to it yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return missing


def functions_in(value: Any) -> Iterator[types.FunctionType]:
    """Yield a function, or that of a method, a property or a cached one, and what it wraps."""
    for inner in ("fget", "func", "__func__"):
        value = getattr(value, inner, None) or value
    while isinstance(value, types.FunctionType):
        yield value
        value = getattr(value, "__wrapped__", None)


class AnyNames:
    """Names that a function's code, and functions inside it, may make.

    Attributes:
        all: any name.
        pieces: parts of names; a name that is made has one of them in it.
    """

    def __init__(self, code: types.CodeType) -> None:
        self.all, self.pieces = False, set[str]()
        for one in codes_of(code):
            steps = [step for step in dis.get_instructions(one) if step.opname != "CACHE"]
            formats = not _FORMATS.isdisjoint(one.co_names) and any(_FIELDS.search(text) for text in texts_of(one))
            by_position = any(step.opname == "MATCH_CLASS" and step.arg for step in steps)  # `case Point(x, y)`
            self.all = self.all or formats or by_position or not _ALL.isdisjoint(one.co_names)
            for number, step in enumerate(steps):
                if step.argval in _BY_NAME and step.opname.startswith("LOAD_"):
                    self._named(steps[number + 1 :])

    def __bool__(self) -> bool:
        return self.all or bool(self.pieces)

    def has(self, name: str) -> bool:
        """Return True if `name` may be made."""
        return self.all or any(piece in name for piece in self.pieces)

    def _named(self, steps: Sequence[dis.Instruction]) -> None:
        """Note the name in a call of `getattr`, which begins with `steps`: its second argument."""
        for number, step in enumerate(steps):
            if step.opname in _CALLS and step.arg in (2, 3):
                last = number - (1 if step.arg == 2 else 2)  # before it stands a default, loaded by one step
                if steps[last].opname == "LOAD_CONST" and isinstance(steps[last].argval, str):
                    return  # a name like others in the code
                if steps[last].opname == "BUILD_STRING":
                    parts = [one.argval for one in steps[:last] if one.opname == "LOAD_CONST"]
                    found = {part for part in parts if isinstance(part, str) and part}
                    self.pieces |= found
                    self.all = self.all or not found
                    return
                break
        self.all = True


#: Finds the names that code may make, once for each code.
any_names = functools.lru_cache(maxsize=4096)(AnyNames)
