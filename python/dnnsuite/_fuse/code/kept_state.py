# SPDX-License-Identifier: MIT
"""State that a forward may change, kept before one that may have to begin anew, and before a trial of another way:
buffers, attributes and generators of its modules, and values outside of them that their code can change: globals,
closures, values of classes, objects in arguments. A part of a model that changes something there cannot run model by
model inside of code for all models.
"""

from __future__ import annotations

import collections
import random
import types
from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from ..._C import Guards
from ..._state import Contents, Kept, attribute_of, keep_bindings, keep_cell, keep_contents, keep_names
from ..._torch import dispatch_modes, hidden_from_modes
from ...nn.forward_state import state
from ...nn.model_tensor import ModelTensor, physical
from ...nn.random_streams import FUNCTION_STREAM, settle_draws
from ...ops.shared import is_frozen, is_shared
from ..hooks import HOOKS, hooks_in
from ..left_tensors import OPAQUE
from ..module_copies import all_in, held_by
from .late_draws import Code, is_followed, names_in
from .own_values import NO_ATTRIBUTES, is_fused

_CONTAINERS = (list, dict, set, collections.deque)
_NO_VALUES = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
_NOT_PUT_BACK = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
_MISSING = object()  # in place of the value of an attribute that was not there


class SharedNumbers:
    """State of the generators of the process: of torch's and, if `others`, of Python's random module and NumPy's.

    Reading those two, and comparing them, takes 60 µs.
    """

    def __init__(self, others: bool = True) -> None:
        self._others = (random.getstate(), np.random.get_state()) if others else None
        self._torch = torch_generators()

    def torch_moved(self) -> bool:
        """Return True if numbers were drawn from torch's since; other threads may have drawn them."""
        return self._torch != torch_generators()

    def moved(self) -> bool:
        """Return True if numbers were drawn from Python's or NumPy's since, which were looked at."""
        if self._others is None:
            return False
        python, (kind_before, words_before, *rest_before) = self._others
        kind, words, *rest = np.random.get_state()
        same = (kind, *rest) == (kind_before, *rest_before) and np.array_equal(words, words_before)
        return not same or python != random.getstate()

    def put_back(self, torchs: bool = False) -> None:
        """Put Python's and NumPy's back, and with `torchs` torch's, which other threads may be using."""
        if self._others is not None:
            random.setstate(self._others[0])
            np.random.set_state(self._others[1])
        if torchs:
            with hidden_from_modes():
                first, *gpus = (torch.frombuffer(bytearray(one), dtype=torch.uint8) for one in self._torch)
                torch.set_rng_state(first)
                if gpus:
                    torch.cuda.set_rng_state_all(gpus)


def torch_generators() -> list[bytes]:
    """Return the states of torch's generators, the CPU's and those of all GPUs in use by this process, out of sight of
    a step that is recorded."""
    with hidden_from_modes() if dispatch_modes() else nullcontext():
        found = [torch.get_rng_state()]
        if torch.cuda.is_initialized() and not in_capture():
            found += torch.cuda.get_rng_state_all()
        return [one.numpy().tobytes() for one in found]


_LARGE = 2**16  # elements of a tensor that is not copied
_SYSTEM = frozenset(("logging", "threading", "_thread", "_io", "io", "typing"))
_OF_OURS = __name__.partition(".")[0]


def _is_left_alone(value: Any) -> bool:
    module = type(value).__module__
    return isinstance(value, OPAQUE) or module in _SYSTEM or module.startswith(_OF_OURS)


def _tensor(value: torch.Tensor) -> Iterable[Kept]:
    """Keep a tensor that is no parameter and no buffer; of one of all models also what it stands for."""
    if type(value) not in (torch.Tensor, ModelTensor) or value.is_inference():
        return
    held = physical(value)
    if type(value) is ModelTensor:
        yield Kept(lambda: value.value, value.become, lambda content: ())
    if not held.requires_grad and held.numel() <= _LARGE:
        numbers = held.clone()
        yield Kept(lambda: held._version, lambda content: held.copy_(numbers), lambda content: ())


class _Contents(Contents):
    """All that can be reached from `values` through containers, attributes and slots, not through modules. A step that
    is recorded does not see it kept and restored."""

    def __init__(self, values: Iterable[Any]) -> None:
        with hidden_from_modes():
            super().__init__(values, {torch.Tensor: _tensor}, _is_left_alone)

    def restore(self) -> None:
        """Restore all contents."""
        with hidden_from_modes():
            super().restore()


class _Attributes:
    """Python state under `root`: attributes of its modules, contents of what is in these, flags of parameters."""

    def __init__(self, root: Any, objects: bool, first: bool) -> None:
        self.named = list(root.named_modules())
        self.modules = modules = [module for _, module in self.named]
        self.inside = set(map(id, modules))
        self.parameters = [p for module in modules for p in module._parameters.values() if p is not None]
        self.holders = [module for module in modules if is_fused(module)]
        plain = [parts.plain for module in self.holders if (parts := vars(module)["_fused_parts"]) is not None]
        # What code of models that run one by one has set is in these.
        self.apart = [one for each in plain if each is not None for model in each.models for one in model.modules()]
        self.kept = [keep_names(vars(module), _is_a_users) for module in (*self.holders, *self.apart)]
        values = [value for one in self.kept for value in one.parts]
        self.contents = _Contents(values if objects and first else ())
        if not (objects and first):
            self.contents.add(
                each for value in values if isinstance(value, _CONTAINERS) for each in keep_contents(value)
            )
        if first:
            self.kept += [
                each for module in modules for hooks in hooks_in(module) if hooks for each in keep_contents(hooks)
            ]
        if objects and first:
            leaves = [p for p in self.parameters if p.is_leaf]

            def write(flags: list[bool]) -> None:
                for parameter, flag in zip(leaves, flags, strict=True):
                    parameter.requires_grad_(flag)

            self.kept.append(Kept(lambda: [p.requires_grad for p in leaves], write, lambda flags: ()))
        self.kept += [_keep_parts(vars(module)) for module in self.holders]
        self.guarded: Guards | None = None  # by these, which hold as long as nothing has changed

    def guards(self) -> Guards | None:
        """Guard all that was looked at, so that it holds as long as what is there is what was kept."""
        if self.apart:
            return None
        guards = Guards()
        for module in self.modules:
            for held in (module._modules, module._parameters, *hooks_in(module)):
                guards.container(held, held.copy())
            for name in ("_modules", "_parameters", "_buffers", *HOOKS):
                guards.item(vars(module), name)
        places = {id(kept.place): kept.place for kept in (*self.kept, *self.contents) if kept.place is not None}
        for place in places.values():
            guards.container(place)
        for kept in (*self.kept, *self.contents):
            if kept.place is None:
                guards.result(kept.changed)
        return guards


class LastKept:
    """Attributes that were kept before the last call of a module, for the next one if nothing has changed since."""

    def __init__(self) -> None:
        self._root: Any = None
        self._objects = False
        self._attributes: _Attributes | None = None
        self._pause = self._left = 0

    def __reduce__(self) -> Any:
        return LastKept, ()  # a copy has modules of its own

    def of(self, root: Any, objects: bool) -> _Attributes:
        """Keep those under `root`; where they change in every call, they are guarded ever more seldom."""
        known = self._attributes
        if known is not None and known.guarded is not None:
            with hidden_from_modes():
                same = self._root is root and self._objects == objects and known.guarded.hold()
            if same:
                self._pause = 0
                return known
            self._pause = min(2 * self._pause + 1, _LONGEST_PAUSE)
            self._left, self._attributes = self._pause, None
        made = _Attributes(root, objects, first=True)
        self._left -= 1
        if self._left < 0:
            with hidden_from_modes():
                made.guarded = made.guards()
            self._root, self._objects, self._attributes = root, objects, made
        return made


_LONGEST_PAUSE = 255  # calls


class KeptState:
    """State under `root` before a forward. The copies are hidden from a recorder: they are made in some forwards only.

    Args:
        parameters: copy the parameters too, for code that may write into them.
        objects: note flags, and copy what objects and nested containers hold, for code not seen to leave them alone.
        others: note the state of Python's and NumPy's generators, for code that may draw from them.
        buffers: names of those that are copied, of a later forward, which changes what the first did and nothing else;
            None for all.
        outside: values outside of the modules.
        again: True if this method has run before: frozen parameters that all models share, most of the memory, are not
            copied again, for a write into one is refused.
        last: attributes that were kept before another call, which are not looked at again if nothing has changed.
    """

    def __init__(
        self,
        root: Any,
        parameters: bool = False,
        objects: bool = True,
        others: bool = True,
        buffers: Collection[str] | None = None,
        outside: KeptOutside | None = None,
        again: bool = False,
        last: LastKept | None = None,
    ) -> None:
        settle_draws()
        self.outside, self.objects, first = outside, objects, buffers is None
        self._attributes = found = _Attributes(root, objects, first) if last is None else last.of(root, objects)
        self.inside, self.holders = found.inside, found.holders
        self.failed = False  # a module inside that has kept nothing for itself
        with hidden_from_modes():
            self._buffers = [
                (path, module, name, buffer, None if buffer is None else buffer.clone())
                for path, module in found.named
                for name, buffer in module._buffers.items()
                if buffers is None or f"{path}.{name}".lstrip(".") in buffers
            ]
            written = [p for p in (found.parameters if parameters else ()) if not (again and is_frozen(p))]
            each = [p.data[:1] if is_shared(p) else p.data for p in written]  # the memory of one
            self._parameters = [(memory, memory.clone()) for memory in each]
            stream: Any = getattr(state.random, "_buffers", {}).get(FUNCTION_STREAM)  # for all parts of the array
            self._stream = None if stream is None else (stream, stream.clone())
        self.numbers = SharedNumbers(others) if first else None

    def changed(self) -> bool:
        """Return True if the contents of a container or an object of the modules are other ones."""
        guards = self._attributes.guarded
        with hidden_from_modes():
            return (guards is None or not guards.hold()) and self._attributes.contents.changed()

    def acts_outside(self) -> bool:
        """Return True if something outside of the modules has changed."""
        return self.outside is not None and self.outside.changed()

    def changed_buffers(self) -> list[str]:
        """Name the buffers that have other values, or are others; none in a capture, which repeats a step."""
        found: list[str] = []
        if in_capture():
            return found
        with hidden_from_modes():
            for path, module, name, buffer, value in self._buffers:
                now: Any = module._buffers.get(name)
                if now is None and buffer is None:
                    continue
                other: Any = value  # None, and other tensors than before, are not compared
                if not (now is buffer and type(now) is torch.Tensor and (now.is_meta or torch.equal(now, other))):
                    found.append(f"{path}.{name}".lstrip("."))
        return found

    def put_back(self) -> None:
        """Restore everything."""
        if self.numbers is not None:
            self.numbers.put_back()
        for kept in self._attributes.kept:
            kept.restore()
        self._attributes.contents.restore()
        if self.outside is not None:
            self.outside.restore()
        if self._stream is not None:
            with hidden_from_modes():
                self._stream[0].copy_(self._stream[1])
        with torch.no_grad():
            for parameter, before in self._parameters:
                if _may_differ(parameter, before):
                    parameter.copy_(before)
            for _, module, name, buffer, value in self._buffers:
                module._buffers[name] = buffer
                # One that autograd may have kept is not touched for nothing.
                if buffer is None or value is None or buffer.is_meta:
                    continue
                held, value = physical(buffer), physical(value)  # a forward may have left its own in a buffer's place
                if _may_differ(held, value):
                    held.copy_(value)


def _may_differ(now: torch.Tensor, before: torch.Tensor) -> bool:
    """Return False if two tensors are equal; a capture does not know it."""
    return in_capture() or not torch.equal(now, before)


def in_capture() -> bool:
    """Return True while a CUDA graph is captured: nothing may wait for the device then."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _keep_parts(held: dict[str, Any]) -> Kept:
    """Keep whether a module has models apart, and values that differ: models that a try has made go with it, for their
    code has run."""
    names = ("_fused_parts", "_fused_own", "_fused_withheld")

    def read() -> list[Any]:
        return [getattr(held["_fused_parts"], "plain", None), *map(held.get, names)]

    def write(content: list[Any]) -> None:
        plain, parts, *_ = content
        held.update(zip(names, content[1:], strict=True))
        if parts is not None:
            parts.plain = plain

    return Kept(read, write, lambda content: (), held if held["_fused_parts"] is None else None)


def note_written(module: Any, name: str) -> None:
    """Note the value of an attribute that code of all models is about to set."""
    state.written.append((module, name, vars(module).get(name, _MISSING)))


def undo_written(begun: int) -> None:
    """Give attributes the values that they had when `state.written` had this length."""
    while len(state.written) > begun:
        module, name, value = state.written.pop()
        if value is _MISSING:
            vars(module).pop(name, None)
        else:
            vars(module)[name] = value


class KeptOutside(_Contents):
    """Values outside of the modules under `root` that `code`, which a call of it reaches, can change, with contents."""

    def __init__(self, root: torch.nn.Module, code: Code, arguments: Sequence[Any] = ()) -> None:
        inside = set(map(id, root.modules()))
        held = all_in(list(arguments), lambda one: [attribute_of(one, "__func__"), *held_by(one)])
        given = [one for one in held if isinstance(one, types.FunctionType)]
        if given:  # the arguments are no part of what the code is
            code = Code([*code, *((one, names_in(one)) for one in given)])
        if code.outside is None:
            code.outside = _Outside(code)
        kept = code.outside.kept({base for module in root.modules() for base in type(module).__mro__})
        values = [*code.outside.defaults, *(value for one in kept for value in one.parts)]
        owners = [attribute_of(value, "__self__") for value in arguments]  # such as the list of `outputs.append`
        values += [owner for owner in owners if owner is not None and not isinstance(owner, types.ModuleType)]
        others = [one for one in values if isinstance(one, torch.nn.Module) and is_fused(one)]
        modules = {id(one): one for one in others if id(one) not in inside}.values()
        kept += [keep_names(vars(one), _is_a_users) for one in modules]
        values += [value for one in kept[-len(modules) :] for value in one.parts] if modules else []
        values += [one for one in arguments if not isinstance(one, torch.Tensor)]
        super().__init__(values)
        self.add(kept)

    @property
    def unknown(self) -> str:
        """Name the kind of a value that cannot be put back; empty if there is none."""
        kinds = (type(one) for one in self.looked_into())
        found = (kind for kind in kinds if hasattr(kind, "__next__") or issubclass(kind, _NOT_PUT_BACK))
        return next((kind.__name__ for kind in found), "")


class _Outside:
    """Places outside of modules that code can change: names in dictionaries, cells, defaults of arguments, classes."""

    def __init__(self, code: Code) -> None:
        self._spaces: dict[int, tuple[Any, set[str]]] = {}  # dictionaries, with the names that are kept
        self._cells: dict[int, types.CellType] = {}
        self._kinds = set[type]()
        self._of_kinds: dict[type, set[str]] = {}
        self.defaults: list[Any] = []
        for function, names in code:
            space = function.__globals__
            chosen = self._spaces.setdefault(id(space), (space, set()))[1]
            for name in (names & space.keys()) - chosen:
                value = space[name]
                if isinstance(value, type):
                    self._kinds.add(value)
                elif not isinstance(value, _NO_VALUES):
                    chosen.add(name)
            self._cells.update((id(cell), cell) for cell in function.__closure__ or ())
            self.defaults += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        self._names = set[str]().union(*(names for _, names in code))

    def kept(self, kinds: set[type]) -> list[Kept]:
        """Keep what is there now, and values of the classes `kinds`."""
        for kind in (kinds | self._kinds) - self._of_kinds.keys():
            self._of_kinds[kind] = _kept_of_class(kind, self._names) if is_followed(kind.__module__) else set()
        spaces = [*self._spaces.values(), *((kind, self._of_kinds[kind]) for kind in kinds | self._kinds)]
        bindings = [keep_bindings(space, names) for space, names in spaces if names]
        return bindings + list(map(keep_cell, self._cells.values()))


def _kept_of_class(kind: type, names: set[str]) -> set[str]:
    """Choose the names of values among `names`: also of those of a base, for code may give the class its own."""
    chosen = set[str]()
    for base in reversed(kind.__mro__):
        held = vars(base)
        for name in names & held.keys():
            value = held[name]
            is_value = not (isinstance(value, _NO_VALUES) or hasattr(type(value), "__get__"))
            chosen.add(name) if is_value else chosen.discard(name)
    return chosen


def contents_in(modules: Iterable[torch.nn.Module]) -> Contents:
    """Keep what the users' attributes of modules hold."""
    return _Contents(v for one in modules for name, v in vars(one).items() if _is_a_users(name, v))


def _is_a_users(name: str, value: Any) -> bool:
    return name not in NO_ATTRIBUTES and not name.startswith("_fused_")
