# SPDX-License-Identifier: MIT
"""Record the operators of one training step, below autograd.

A dispatch mode sees the operators of forward, backward and update alike, with all that autograd and autocast add: a
replay needs neither.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..._fuse import gives_own_memory
from ..._torch import (
    StorageWeakRef,
    TorchDispatchMode,
    assert_true,
    hidden_from_function_modes,
    innermost_dispatch_mode,
    to_copy,
)
from ...nn.model_tensor import ModelTensor, state
from .looks import looks_on_the_way
from .plan import (
    MARK,
    Operator,
    OperatorCall,
    StepRecording,
    TensorSlot,
    known_operator,
    operator_of,
    slots_in,
    slots_of,
    written_slots,
)
from .stand_ins import FollowedNumber
from .unseen import in_a_loop, user_place

_FIRST_NUMBER = 10**9  # slot of the first number: no step has as many tensors
_KEPT_BYTES = 2**18  # a constant larger than this is computed anew in each step
#: Operators that read lengths in C++: shapes and order of what follows depend on these.
_BY_LENGTHS = frozenset(("aten._pack_padded_sequence", "aten._pad_packed_sequence"))
#: Where shapes depend on the values of the second argument, and not on those of all.
_BY_SECOND = _BY_LENGTHS | {"aten.index", "aten.masked_select"}
_COUNTS = "aten.bincount"
_COPIES = frozenset(("aten._to_copy", "aten.copy_"))
#: Operators whose gradients torch computes by another formula, with other bits, while a dispatch mode watches, and the
#: places of the arguments that these gradients are of; found by comparing both on torch's own samples.
OTHER_GRADIENTS = {"aten.prod": (0,), "aten.masked_fill": (2,)}
_MASKS = (torch.bool, torch.uint8)
_TENSORS = frozenset((torch.Tensor, torch.nn.Parameter))
_PLAIN = frozenset((type(None), bool, int, float, str, torch.dtype, torch.device, torch.layout))
READS_A_VALUE = "aten._local_scalar_dense hands a tensor's value to Python (as .item() does)"

Key = tuple[Any, ...]


class WritesElsewhere(BaseException):
    """Raised before the step writes into a tensor that its caller does not put back; a user's `except Exception` does
    not catch it."""


class StepRecorder(TorchDispatchMode):
    """Dispatch mode that records the operators that run inside it, and runs them.

    A tensor is identified by its storage and its place there, not by its object: autograd returns new objects for saved
    tensors. Storages are held by weak references, so that none lives longer than without a recorder.

    Attributes:
        handed: numbers that stand for others in this step, each with what is known of it; among the arguments of
            operators they become inputs of the recording.
        fed: list of what is known of each of these inputs, and of its type.
        parts: models that run one by one differ in what Python reads: the recording ends where it reads on the way.
    """

    def __init__(
        self,
        inputs: Sequence[torch.Tensor],
        fixed: int = 0,
        seeded: bool = False,
        home: torch.device | None = None,
        may_change: set[int] | None = None,
    ) -> None:
        """`inputs` are the tensors of one step; the last `fixed` of them seldom change. `seeded`: torch's random
        generator may be drawn from. `home`: the only device that operators may run on, in a graph of which the host has
        no part. `may_change`: storages from before the step that it may write into; None for all.
        """
        super().__init__()
        self._seeded, self._home, self._may_change = seeded, home, may_change
        self.recording = StepRecording()
        self.handed: dict[float, Any] = {}
        self.fed: list[tuple[Any, type]] = []
        self.hand: Callable[[str, Any], Any] | None = None  # numbers in the place of stand-ins, for a function's name
        self._slots_of_numbers: dict[tuple[float, type], int] = {}
        self._slots: dict[Key, int] = {}
        self._count = 0
        self._alive: dict[int, StorageWeakRef] = {}  # as long as they exist no new storage gets the same address
        self._inner: set[int] = set()  # storages of inputs and results
        self._outer: set[int] = set()  # storages of external tensors
        self._constant: set[int] = set()
        self._hosted: set[int] = set()  # storages of the host's that the step makes of numbers
        self.taken: torch.Tensor | None = None
        self._follows_floats = False
        self.parts, self._looked = False, 0
        self._turns, self._left, self._thread = state.turns, False, threading.get_ident()
        self._origins: dict[int, set[int]] = {}  # of what follows from external and fixed tensors alone: which
        for tensor in inputs:
            slot = self._add(tensor, _key(tensor))
            self.recording.inputs.append(slot)
            self._inner.add(self.recording.storage[slot])
        for slot in self.recording.inputs[len(inputs) - fixed :]:
            self._origins[slot] = {slot}

    def _add(self, tensor: torch.Tensor, key: Key) -> int:
        address = key[0]
        if address not in self._alive:
            self._alive[address] = StorageWeakRef(tensor.untyped_storage())
        slot = self._slots[key] = self._count
        self.recording.storage[slot] = address
        self._count += 1
        return slot

    def leave_if_in_vain(self) -> bool:
        """End the recording in the middle of the step if nobody will replay it, because it is refused or a part of the
        models' code has begun anew in another way: what follows runs as without it. Return True if it has ended."""
        recording = self.recording
        in_vain = recording.refusal is not None or state.turns != self._turns or self._parts_at_looks()
        can_leave = not self._left and self._may_change is None and self._thread == threading.get_ident()
        if in_vain and can_leave and innermost_dispatch_mode() is self:
            self._left, recording.partial = True, recording.refusal is None
            super().__exit__(None, None, None)
        return self._left

    def _parts_at_looks(self) -> bool:
        """Return True if Python has read a value on the way, and models that do so are to get shards of their own."""
        recording = self.recording
        if self.parts and len(recording.looks) > self._looked:
            self._looked = len(recording.looks)
            recording.parted = looks_on_the_way(recording, recording.looks[-1:])
        return recording.parted

    def __exit__(self, *error: Any) -> None:
        """End the recording, unless that is done."""
        if not self._left:
            super().__exit__(*error)

    def _refuse(self, why: str) -> None:
        if self.recording.refusal is None:
            self.recording.refuse(why + user_place())

    def slot(self, tensor: torch.Tensor) -> TensorSlot:
        """Find the slot of a tensor that an operator takes."""
        if type(tensor) not in _TENSORS or tensor.layout != torch.strided:
            self._refuse(f"it uses a {type(tensor).__name__} of layout {tensor.layout}")
            return TensorSlot(-1)
        key = _key(tensor)
        found = self._slots.get(key)
        if found is None:
            if tensor.is_conj() or tensor.is_neg():
                self._refuse("a tensor from before the step is conjugated lazily")
            found = self._add(tensor, key)
            if self.recording.storage[found] in self._inner:
                self._refuse("a view of a result was made where torch's dispatcher does not see it")
            self.recording.external[found] = tensor  # itself: a copy here would not share the version
            self._outer.add(self.recording.storage[found])
            self._origins[found] = {found}
        return TensorSlot(found)

    def _with_slots(self, value: Any) -> Any:
        if type(value) in _PLAIN:
            is_handed = self.handed and type(value) in (int, float) and value in self.handed
            return TensorSlot(self._number(value)) if is_handed else value
        if type(value) in (FollowedNumber, torch.SymFloat):  # the latter is what C++ has made of it
            self._refuse("a number that changes reaches torch where it is not followed, as in a backward pass")
        if isinstance(value, torch.Tensor):
            return self.slot(value)
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._with_slots, value))
        return value

    def _number(self, value: float) -> int:
        """Return the slot of a number that stands for another: an input of the recording."""
        key = value, type(value)
        if key not in self._slots_of_numbers:
            slot = self._slots_of_numbers[key] = _FIRST_NUMBER + len(self.fed)
            self.recording.numbers[slot] = type(value)
            self.recording.storage[slot] = -slot
            self.recording.inputs.append(slot)
            self.fed.append((self.handed[value], type(value)))
        return self._slots_of_numbers[key]

    def record(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator and record it."""
        with hidden_from_function_modes():  # one that is Python's would see each look at a shape
            if args and type(args[0]) is ModelTensor:  # what it does to the tensors of all models is seen then
                return func(*args, **(kwargs or {}))
            if gives_own_memory(func, args):
                return func(*args, **(kwargs or {}))
            if self.recording.refusal is not None and self._may_change is None:
                return func(*args, **(kwargs or {}))  # nobody replays it: no more is written down
            if self.hand is not None and FollowedNumber in map(type, args):
                known = operator_of(func)
                name = "" if known is None else known.name.rpartition(".")[2]
                args = tuple(self.hand(name, one) for one in args)
            return self._recorded(func, args, kwargs or {})

    def _recorded(self, func: Any, args: Any, kwargs: Any) -> Any:
        given: list[Any] = []
        arguments: tuple[Any, ...] = ()
        operator = None
        try:
            operator = operator_of(func)
            if operator is None:
                self._refuse(f"{func} has no schema")
            else:
                given = operator.arguments(args, kwargs)
                arguments = tuple(map(self._with_slots, given))
                lists = [one for one in given if isinstance(one, (list, tuple))] if operator.sized_by_values else ()
                # An index by a mask is as long as the mask has true elements.
                masked = any(isinstance(t, torch.Tensor) and t.dtype in _MASKS for one in lists for t in one)
                self._check(operator, given, arguments, masked)
                if self._may_change is not None and operator.written:
                    storage = self.recording.storage
                    outer = {storage[slot] for slot in self.recording.external} - self._may_change
                    if not outer.isdisjoint(storage[slot] for slot in written_slots(operator, arguments)):
                        raise WritesElsewhere
        except Exception as error:
            self._refuse_unknown(func, error)
        output = func(*args, **kwargs)
        if operator is not None:
            try:
                if self._home is not None:
                    self._check_devices(operator, given, output)
                self._note(func, operator, arguments, output)
                if operator.looks and self.recording.refusal is None:
                    self.recording.values.append((operator.name, output))
                if operator.scalar:
                    self._look(given[0], arguments[0], output)
                elif operator.name == _COUNTS and self.recording.refusal is None:
                    self._look(*self._length(output), len(output))
            except Exception as error:
                self._refuse_unknown(func, error)
        return output

    def _refuse_unknown(self, func: Any, error: Exception) -> None:
        """End the recording, not the step, if the schema of `func`, which is private to torch, has another form."""
        self._refuse(f"{func} is not understood: {type(error).__name__}: {error}")

    def _check(self, operator: Operator, values: Sequence[Any], given: Sequence[Any], masked: bool) -> None:
        name = operator.name
        if operator.looks:
            origins, asserted = (self._origin(given), operator.scalar and not self._seeded and assert_true is not None)
            if origins is not None and not (asserted and self._are_trained(values[0], origins)):
                self._note_read(origins)  # a flag or a hyper-parameter: it holds until somebody changes it
                return
            if asserted:
                return  # `_look` takes note of it
            self._refuse(f"{name} hands a tensor's value to Python (as .item() does)")
        elif name == _COUNTS and not self._seeded and assert_true is not None:
            return  # almost always as long as its `minlength`, which `_recorded` asserts
        elif name in _BY_LENGTHS or (operator.sized_by_values and (masked or name != "aten.index")):
            origins = self._origin([given[1]] if name in _BY_SECOND else given)
            if origins is None or (operator.sized_by_values and self._home is not None):  # a graph cannot wait for it
                self._refuse(f"the shape of what {name} returns depends on values")
            else:
                self._note_read(origins)  # for example a graph's edges, of which a layer leaves some out
        elif operator.reshapes and operator.view is None:
            self._refuse(f"{name} changes a tensor's shape in place")
        elif name == "dnnsuite.draw" and self._seeded:
            self._refuse("random numbers of functions are drawn with generators on the host")
        elif name in OTHER_GRADIENTS and not self._seeded and _takes_gradient(values, OTHER_GRADIENTS[name]):
            self._refuse(f"torch computes the gradient of {name} in another way while it is recorded")
        elif operator.draws and not (self._seeded or any(given[place] in (0, 0.0, False) for place in operator.rates)):
            self._refuse(f"{name} draws from torch's generator")

    def _note_read(self, origins: set[int]) -> None:
        where = user_place()
        self.recording.read |= {origin: where for origin in origins if origin not in self.recording.read}

    def _check_devices(self, operator: Operator, given: Sequence[Any], output: Any) -> None:
        """Refuse a tensor of another device: a graph would keep its current value, or CUDA would refuse it and fail in
        every later step of the process. What the step makes of Python's numbers alone on the host is the same each
        time, and so is a scalar of that kind among the operands of the device."""
        name, taken, made = operator.name, _tensors_in(given), _tensors_in([output])
        strange = [tensor for tensor in taken + made if tensor.device != self._home and tensor.numel()]
        if not strange:
            return  # one without numbers has no values to keep: a checkpoint makes such
        if name.startswith("dnnsuite."):  # whole numbers on the host, read when the operator is launched
            strange = [tensor for tensor in strange if tensor.is_floating_point()]
        elif name.startswith("aten._scaled_dot_product"):  # a seed, which nothing reads without dropout
            strange = [tensor for tensor in strange if tensor.dim() or tensor.is_floating_point()]
        elif not operator.draws and all(tensor.device != self._home for tensor in taken + made):
            strange = [t for t in taken if name != "aten.lift_fresh" and _key(t)[0] not in self._hosted]
            if not strange:
                self._hosted |= {_key(tensor)[0] for tensor in made}
        elif name not in _COPIES:
            strange = [tensor for tensor in strange if tensor.dim() or _key(tensor)[0] not in self._hosted]
        if strange:
            self._refuse(f"{name} meets a tensor on {strange[0].device}, and a graph runs on {self._home} alone")

    def _look(self, tensor: torch.Tensor, slot: TensorSlot, value: Any) -> None:
        """Add an assertion of the value that Python has read. Floats, which differ in each step, are followed where
        the caller can, else refused."""
        origins = self._origin([slot])
        holds = origins is not None and not self._are_trained(tensor, origins)
        if holds or self._seeded or assert_true is None:
            return  # is among `read`, or refused
        if type(value) is float and self._follows_floats and to_copy is not None:
            self.taken = self._widened(tensor, slot)
            return
        if not isinstance(value, (bool, int)):
            self._refuse(READS_A_VALUE)
            return
        same = torch.ops.aten.eq.Scalar(tensor, int(value))
        said = f"{MARK}{user_place()} (read {len(self.recording.looks)})"
        self._add_call(torch.ops.aten.eq.Scalar, (slot, int(value)), same)
        self._add_call(assert_true, (self.slot(same), said), None)
        self.recording.looks.append(len(self.recording.calls) - 1)
        if in_a_loop():
            self.recording.in_loops.add(self.recording.looks[-1])

    def _are_trained(self, value: torch.Tensor, origins: set[int]) -> bool:
        """Return True for a `value` that is no fraction and follows from parameters that take gradients: it is
        asserted in each step, as `torch.distributions` checks a scale."""
        known = self.recording.external
        return not value.is_floating_point() and any(
            known[origin].requires_grad for origin in origins if origin in known
        )

    def _length(self, line: torch.Tensor) -> tuple[torch.Tensor, TensorSlot]:
        """Compute the length of a line as a tensor of one number."""
        equal, total = torch.ops.aten.eq.Tensor, torch.ops.aten.sum.default
        each: torch.Tensor = equal(line, line)  # follows from the line, as its length does; ones would be constant
        self._add_call(equal, (self.slot(line), self.slot(line)), each)
        length: torch.Tensor = total(each)
        self._add_call(total, (self.slot(each), *known_operator(total).arguments((each,), {})[1:]), length)
        return length, self.slot(length)

    def _widened(self, tensor: torch.Tensor, slot: TensorSlot) -> torch.Tensor:
        """Copy the one element of a tensor to float64, which Python has read it as."""
        widen = to_copy
        given = known_operator(widen).arguments((tensor,), {"dtype": torch.float64})
        wide: torch.Tensor = widen(tensor, dtype=torch.float64)
        self._add_call(widen, (slot, *given[1:]), wide)
        return wide

    @contextmanager
    def follows_floats(self) -> Iterator[None]:
        """Context manager: the float that is read inside is followed; `taken` is its float64 tensor, None if the float
        stays the same from step to step."""
        self._follows_floats, self.taken = True, None
        try:
            yield
        finally:
            self._follows_floats = False

    def _add_call(self, op: Any, arguments: tuple[Any, ...], output: Any) -> None:
        """Note an operator that the step as written does not call."""
        self._note(op, known_operator(op), arguments, output)

    def _note(self, func: Any, operator: Operator, arguments: tuple[Any, ...], output: Any) -> None:
        if operator.view is not None:
            func, operator = operator.view, known_operator(operator.view)
        recording = self.recording
        storage = recording.storage
        slots = slots_of(arguments) - {-1}
        written = written_slots(operator, arguments) if operator.written else ()
        for slot in written:
            recording.written.add(storage[slot])
        writes = bool(written) or operator.only_acts
        known = self._count
        results = [output] if not isinstance(output, (tuple, list)) or operator.returns_list else list(output)
        outputs: list[Any] = []
        for result in results:
            if isinstance(result, (list, tuple)):
                outputs.append([self._output(t) for t in result])
            else:
                outputs.append(self._output(result) if isinstance(result, torch.Tensor) else None)
        new = [slot for slot in slots_in(outputs) if slot >= known]
        if not writes and not new:
            return  # detach and the like: the same tensor again
        origins = None if writes else self._origin_of(slots)
        if origins is not None:
            self._origins.update((slot, origins) for slot in new)
        fresh = {storage[slot] for slot in new}
        self._inner |= fresh - self._outer
        views = fresh <= {storage[slot] for slot in slots}
        call = OperatorCall(func, arguments, outputs, writes, views, place=user_place())
        # An operator on tensors that takes none has numbers in their place: autograd conjugates a factor like 1j.
        constant = slots <= self._constant if slots else "Tensor" in operator.types and not operator.draws
        if not writes and (operator.by_shape or constant):
            self._keep_constant(call, results, slots)
        recording.calls.append(call)

    def _origin(self, arguments: Sequence[Any]) -> set[int] | None:
        """Find the external and fixed tensors that `arguments` depend on; None if they depend on others too."""
        return self._origin_of(slots_of(arguments))

    def _origin_of(self, slots: set[int]) -> set[int] | None:
        if not slots <= self._origins.keys():
            return None
        return set().union(*(self._origins[slot] for slot in slots))

    def _output(self, tensor: torch.Tensor) -> int | None:
        if tensor.layout != torch.strided:
            self._refuse(f"it uses a tensor of layout {tensor.layout}")
            return None
        key = _key(tensor)
        found = self._slots.get(key)
        return self._add(tensor, key) if found is None else found

    def _keep_constant(self, call: OperatorCall, results: list[Any], taken: set[int]) -> None:
        """Keep results that are the same in every step while nothing writes into them."""
        if not taken.isdisjoint(self.recording.numbers):
            return
        if all(isinstance(t, torch.Tensor) and t.untyped_storage().nbytes() <= _KEPT_BYTES for t in results):
            call.results = [t.detach() for t in results]
            self._constant |= slots_in(call.outputs)


StepRecorder.__torch_dispatch__ = StepRecorder.record  # so, torch does not wrap it to be left out by its compiler


def _key(tensor: torch.Tensor) -> Key:
    storage = tensor.untyped_storage()._cdata
    lazily = tensor.is_conj(), tensor.is_neg()  # bits of the view, not of its memory
    return storage, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype, lazily


def _tensors_in(values: Sequence[Any]) -> list[torch.Tensor]:
    each = (one for value in values for one in (value if isinstance(value, (list, tuple)) else [value]))
    return [one for one in each if isinstance(one, torch.Tensor)]


def _takes_gradient(values: Sequence[Any], places: Sequence[int]) -> bool:
    """Return True if a gradient of an argument in one of these places may be asked for."""
    given = [values[place] for place in places]
    return torch.is_grad_enabled() and any(isinstance(one, torch.Tensor) and one.requires_grad for one in given)
