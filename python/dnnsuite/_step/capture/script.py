# SPDX-License-Identifier: MIT
"""Run a list of operators from C++, without Python's interpreter lock, as boxed calls of torch's (`cpp/replay`).

The library looks each operator up once, runs them in recorded order, and frees a tensor after its last use. It needs
torch's own C++ interface, for the stable one gives no operator a Scalar, so there is one for each torch.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ... import _memory as memory
from ...ops import as_real
from ...ops.library import library_folder
from .guards import leave_in
from .looks import ValueChanged, begun_with_looks, changed_before_looks
from .plan import (
    MARK,
    ReplayPlan,
    StepRecording,
    TensorSlot,
    known_operator,
    make_plan,
    slots_in,
    slots_of,
    written_slots,
)


class NotScriptable(Exception):
    """Signal that no replay of a step can be made; the message says why."""


def _open() -> tuple[Any, str | None]:
    """Open the library for this torch: (module, None), or (None, why there is none)."""
    version, suffix = torch.__version__.partition("+")[0], sysconfig.get_config_var("EXT_SUFFIX")
    if version.replace(".", "").isdigit():  # a version before a release is like no other
        version = ".".join(version.split(".")[:2])
    path = library_folder() / f"_replay-{version}{suffix}"
    spec = importlib.util.spec_from_file_location("dnnsuite._replay", path)
    if not path.is_file() or spec is None or spec.loader is None:
        built = [one.name.removesuffix(suffix).partition("-")[2] for one in path.parent.glob(f"_replay-*{suffix}")]
        found = f"torch {' and '.join(sorted(built))}" if built else "no torch"
        return None, f"this build replays steps on a CPU under {found}, and this is torch {torch.__version__}"
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        return None, f"{path} does not load: {error}"
    return module, None


REPLAY, no_replay = _open()


def program_of(plan: ReplayPlan) -> Any:
    """Make the program of a plan: `program.on(kept)(inputs)` lists the losses and what the step leaves in modules,
    where `kept` has the tensors of `plan.static`."""
    if REPLAY is None:
        raise NotScriptable(no_replay)
    calls = [(c.op._schema.name, c.op._schema.overload_name, c.arguments, c.outputs) for c in plan.calls]
    results = [plan.losses, *plan.left.values()]
    return REPLAY.Program(plan.inputs, list(plan.static), calls, results, TensorSlot)


class Scripts:
    """Maker of scripts of steps."""

    seeded = False  # torch's generator may not be drawn from: which numbers a model gets would depend on the others
    home: torch.device | None = None  # where all tensors of a step have to be; None where it is all one
    runs_code = False  # nothing of a step's own code runs while its replay is made
    warms_up = False  # the first step may be recorded

    def steps(self, train: Any, array: torch.nn.Module) -> Any:
        """Return the steps of `array` as they are recorded."""
        return train

    def recording(self) -> contextlib.AbstractContextManager[Any]:
        """Return a block for steps on the way to a script."""
        return contextlib.nullcontext()

    def fixed(self, batch: Any, hyper: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """Return the inputs of the recorded step: a script takes each step's tensors as they are. Others in it may have
        sizes that no step before had."""
        memory.expect_other_sizes()
        return batch, hyper

    def prepare(self, train: Any, recording: StepRecording, batch: Any, hyper: Sequence[Any]) -> Script:
        try:
            return self._replay(recording)
        except NotScriptable:
            raise
        except Exception as error:  # schemas and graphs are private to torch, and no two versions need to agree on them
            raise NotScriptable(f"the step cannot be replayed: {described(error)}") from error

    def _replay(self, recording: StepRecording) -> Script:
        if not recording.looks:
            return Script(make_plan(recording))
        recording = begun_with_looks(recording)
        return Script(make_plan(recording), changed_before_looks(recording))

    def home_of_copies(self, tensors: Sequence[torch.Tensor], audits: bool = False) -> torch.device | None:
        """Return the device for copies of a state's tensors: their own."""
        return None

    def release(self) -> None:
        """Do nothing: a script holds no memory between steps."""

    def repeat(self, state: Any) -> SameBits:
        """Return a judge of a replay from `state` against the step as written."""
        return SameBits()


class SameBits:
    """Comparison of a replay with the step as written: nothing may differ."""

    can_undo = False  # it runs on a host, whose memory does not end in the middle of a step

    def same_draws(self) -> None:
        """Do nothing: a script draws no random numbers of torch's generator."""

    def agrees(
        self, replayed: Sequence[torch.Tensor], written: Sequence[torch.Tensor], step: Callable[[], torch.Tensor]
    ) -> bool:
        """Return True if all results are the same, bit by bit; `step` is not run."""
        return not any(map(self.differ, replayed, written))

    def differ(self, replayed: torch.Tensor, written: torch.Tensor) -> bool:
        """Return True if one result is another one."""
        return not same_bits(replayed, written.detach())


class Script:
    """A plan, ready to run: `script(inputs)` runs the step on the step's own tensors and returns the losses. Scripts of
    other shards share its `program`.

    Args:
        changed: tensors that the step changes before the last assertion in it; one that fails undoes that. None where
            there is no assertion.
    """

    _leave: Callable[[Any], None] | None = None

    def __init__(self, plan: ReplayPlan, changed: Sequence[torch.Tensor] | None = None) -> None:
        self.program, self.plan, self.changed = program_of(plan), plan, changed
        self._keep(list(plan.static.values()), plan.roots)

    def _keep(self, static: list[torch.Tensor], begin: Mapping[int, torch.Tensor]) -> None:
        """Run on these tensors from now on. Note where the memory of those is that views were made of: `.data = ...`
        gives them another."""
        self._static, self._run = static, self.program.on(static)
        viewed = {slot for call in self.plan.views for slot in slots_of(call.arguments)} & self.plan.external
        self._begin = {slot: begin[slot] for slot in viewed if slot in begin}
        self._addresses = list(map(torch.Tensor.data_ptr, self._begin.values()))

    def written(self) -> list[torch.Tensor]:
        """List the tensors from before a step, or views of them, that the step writes into."""
        source = {slot: slot for slot in self.plan.static}
        found: set[int] = set()
        for call in self.plan.calls:
            known = known_operator(call.op)
            written = written_slots(known, call.arguments) if call.writes else ()
            if call.views:  # of what is written, where something is: `copy_` returns a view of its first tensor
                origins = [source[s] for s in written or slots_of(call.arguments) if s in source]
                source |= {slot: origins[0] for slot in slots_in(call.outputs) if origins}
            found |= {source[s] for s in written if s in source}
        return [tensor for slot, tensor in zip(self.plan.static, self._static, strict=True) if slot in found]

    def bound(
        self,
        plan: ReplayPlan,
        begin: Mapping[int, torch.Tensor] | None = None,
        changed: Sequence[torch.Tensor] | None = None,
    ) -> Script:
        """Make this script for a step that begins with other tensors, by slot; `plan` equals its own plan except for
        `static`."""
        other = copy.copy(self)
        other.plan, other._leave, other.changed = plan, None, changed
        if begin is None:
            other._static, other._run, other._begin = [], None, {}
        else:
            other._keep(plan.on(begin), begin)
        return other

    def leaves_in(self, array: torch.nn.Module) -> bool:
        """Leave what the step leaves in attributes in those of `array` from now on; return True if there is any."""
        self._leave = leave_in(array) if self.plan.left else None
        return bool(self.plan.left)

    def __call__(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        if self._begin and list(map(torch.Tensor.data_ptr, self._begin.values())) != self._addresses:
            self._keep(self.plan.on(self._begin), self._begin)
        losses, *left = self._run(inputs) if self.changed is None else self._checked(inputs, self.changed)
        if self._leave is not None:
            self._leave(zip(self.plan.left, left, strict=True))
        return losses

    def _checked(self, inputs: Sequence[torch.Tensor], changed: Sequence[torch.Tensor]) -> Any:
        """Run the step; if an assertion in it fails, undo what it has changed."""
        before = [tensor.clone() for tensor in changed]
        try:
            return self._run(inputs)
        except RuntimeError as error:
            for tensor, value in zip(changed, before, strict=True):
                tensor.copy_(value)
            found = str(error).partition(MARK)
            if found[1]:
                raise ValueChanged("".join(found[1:])) from None
            raise


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Compare to the bit, NaN included."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = as_real(a), as_real(b)
    kind = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(a.element_size())
    if kind is None or a.dtype == torch.bool:
        return torch.equal(a, b)
    return torch.equal(a.contiguous().view(kind), b.contiguous().view(kind))


def described(error: Exception) -> str:
    """Describe an error by the first line of its message, with its class unless it is RuntimeError, torch's usual
    one."""
    line = next(iter(str(error).splitlines()), "")
    return line if line and type(error) is RuntimeError else f"{type(error).__name__}: {line}"
