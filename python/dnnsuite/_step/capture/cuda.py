# SPDX-License-Identifier: MIT
"""A step as a CUDA graph: one launch for all of its kernels."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch

from ..batches import copy_over, own_copy, static_copy
from . import guards
from .comparison import State
from .left import leave_in, tensors_left
from .looks import Replay
from .recording import StepRecording
from .script import NotScriptable

Train = Callable[[Any, Sequence[Any]], torch.Tensor]

_NEAR = 1e-3  # difference of two runs of a step, relative to its size, that kernels without a fixed order may leave
_TINY = 1e-5  # the same per element, where all is about zero
_ROUNDING = 3e-7  # relative, of numbers in 32 bits


class GraphDevice(Protocol):
    """The calls of a device that graphs need; tests give a double that runs on a CPU."""

    home: torch.device

    def stream(self) -> contextlib.AbstractContextManager[Any]:
        """Return a block on the stream that graphs are captured on, in order with the caller's stream."""

    def capture(self, step: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        """Capture a step without running it; return its launch, and the tensor that gets its result.

        Raises:
            RuntimeError, ValueError: if the device refuses.
        """

    def draws(self) -> torch.Tensor:
        """Return the state of the device's random generator."""

    def put_draws_back(self, state: torch.Tensor) -> None:
        """Set the state of the device's random generator."""


class CudaDevice:
    """One GPU. The graphs of one array share their memory, for only one runs at a time."""

    def __init__(self, home: torch.device) -> None:
        self.home = home
        self._pool: Any = None
        self._side: torch.cuda.Stream | None = None

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        if self._side is None:
            self._side = torch.cuda.Stream(self.home)
        caller = torch.cuda.current_stream(self.home)
        self._side.wait_stream(caller)
        with torch.cuda.stream(self._side):
            yield
        caller.wait_stream(self._side)

    def capture(self, step: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        # Other threads, as a loader that pins memory, may do meanwhile what a capture may not.
        how = {"pool": self._pool, "stream": self._side, "capture_error_mode": "thread_local"}
        try:
            with torch.cuda.device(self.home):
                torch.cuda.synchronize()
                with torch.cuda.graph(graph, **how):
                    losses = step()
        except BaseException:
            torch.cuda.synchronize(self.home)
            raise
        return graph.replay, losses

    def draws(self) -> torch.Tensor:
        return torch.cuda.get_rng_state(self.home)

    def put_draws_back(self, state: torch.Tensor) -> None:
        torch.cuda.set_rng_state(state, self.home)


class CudaGraphs:
    """Maker of graphs of steps.

    Random numbers of torch's generator are allowed (a graph advances it at each launch). Where torch's own kernels add
    in no fixed order a replay is as close to the step as written as that is to itself.
    """

    seeded = True
    warms_up = True  # libraries make their workspaces in the first step, which no graph may

    def __init__(self, device: GraphDevice) -> None:
        self._device = device
        self.home: torch.device | None = device.home

    def recording(self) -> contextlib.AbstractContextManager[Any]:
        """Return a block for steps on the way to a graph: on its stream, so that libraries' handles and workspaces are
        those that it will use."""
        return self._device.stream()

    def repeat(self, state: State) -> CudaRepeat:
        """Return a judge of a replay from `state` against the step as written."""
        return CudaRepeat(self._device, state)

    def fixed(self, batch: Any, hyper: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """Copy the inputs to where the graph will read them. The recorded step runs on the copies too, so that anything
        computed once per tensor is computed before the capture."""
        return own_copy(batch), [{name: static_copy(value) for name, value in own.items()} for own in hyper]

    def prepare(
        self,
        train: Train,
        recording: StepRecording,
        batch: Any,
        hyper: Sequence[Any],
        inputs: list[torch.Tensor],
    ) -> CudaGraph:
        return CudaGraph(self._device, train, recording, batch, hyper)


class CudaRepeat:
    """Comparison of a replay with the step as written, both from one state.

    Kernels without a fixed order of sums, and kernels that are chosen under a capture only, round differently; nearly
    always by far less than the bound of `_distance`. Where a gradient is all rounding error (of a bias before a batch
    norm), Adam turns it into a full step: there a replay may differ from the step as written by as much as that step
    changes when its parameters change by a rounding error.
    """

    def __init__(self, device: GraphDevice, state: State) -> None:
        self._device, self._draws = device, device.draws()
        self._tensors = state.tensors
        self._before = [value.clone() for value in state.values]

    def same_draws(self) -> None:
        """Let the next step draw the same random numbers as the last."""
        self._device.put_draws_back(self._draws)

    def agrees(
        self,
        replayed: Sequence[torch.Tensor],
        written: Sequence[torch.Tensor],
        step: Callable[[], torch.Tensor],
    ) -> bool:
        """Return True if the results of a replay are those of the step as written, but for rounding.

        Args:
            replayed: losses, and what the state's tensors were after the replay.
            written: losses, and the state's tensors, as the step as written has left them.
            step: the step as written, which may be run once more.
        """
        written = [tensor.detach() for tensor in written]
        each = enumerate(zip(replayed, written, strict=True))
        far = [place for place, (a, b) in each if self.differ(a, b)]
        if not far:
            return True
        shaken = self._shaken(step)
        bound = [4 * _distance(shaken[place], written[place]) for place in far]
        near = zip(far, bound, strict=True)
        return all(_distance(replayed[i], written[i]) <= most < math.inf for i, most in near)

    def differ(self, replayed: torch.Tensor, written: torch.Tensor) -> bool:
        """Return True if one result is far from another."""
        return _distance(replayed, written.detach()) > 1

    def _shaken(self, step: Callable[[], torch.Tensor]) -> list[torch.Tensor]:
        """Run the step from parameters changed by rounding errors; return its results, and undo it."""
        after, draws = [tensor.detach().clone() for tensor in self._tensors], self._device.draws()
        self._set(self._before)
        for tensor in self._tensors:
            if tensor.requires_grad:
                signs = torch.arange(tensor.numel(), device=tensor.device).view(tensor.shape) % 2 * 2 - 1
                tensor.detach().mul_(1 + _ROUNDING * signs.to(tensor.dtype))
        self.same_draws()
        results = [step().detach(), *(tensor.detach().clone() for tensor in self._tensors)]
        self._set(after)
        self._device.put_draws_back(draws)
        return results

    def _set(self, values: Sequence[torch.Tensor]) -> None:
        for tensor, value in zip(self._tensors, values, strict=True):
            tensor.detach().copy_(value)


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the norm of a - b over the largest difference that rounding explains; infinity if they differ in integers,
    or in the places of NaN and infinity."""
    if not (a.is_floating_point() or a.is_complex()):
        return 0.0 if torch.equal(a, b) else math.inf
    finite = torch.isfinite(b)
    if not torch.equal(a[~finite].nan_to_num(), b[~finite].nan_to_num()) or not a[finite].isfinite().all():
        return math.inf
    wide = torch.complex128 if a.is_complex() else torch.float64
    ours, other = a[finite].to(wide), b[finite].to(wide)
    return float((ours - other).norm() / (_NEAR * other.norm() + _TINY * max(1, other.numel()) ** 0.5))


class CudaGraph:
    """`graph(inputs)` copies the step's own tensors to where the graph reads them, launches it, and returns the losses.

    `batch` and `hyper` are the graph's own; nothing else may write into them. Making one runs nothing: kernels launched
    during a capture are only recorded.
    """

    guard: Replay | None = None

    def __init__(
        self, device: GraphDevice, train: Train, recording: StepRecording, batch: Any, hyper: Sequence[Any]
    ) -> None:
        self._device = device
        self._inputs = guards.flatten(batch)[0]
        self._given, self._places = len(self._inputs), list(recording.left)
        self._left: dict[tuple[int, str], torch.Tensor] = {}
        for own in hyper:
            self._inputs += own.values()
        self._seen: list[tuple[torch.Tensor, int] | None] = [None] * len(self._inputs)
        # A graph knows addresses alone: what lies there has to stay, also if the model puts another in its place.
        self._kept, self._written = list(recording.external.values()), recording.written_externals()
        try:
            self._launch, self._losses = device.capture(lambda: train(batch, hyper))
        except (RuntimeError, ValueError) as error:
            why = (str(error).splitlines() or [type(error).__name__])[0]
            raise NotScriptable(f"CUDA refuses the capture: {why}") from None

    def written(self) -> Sequence[torch.Tensor]:
        return self._written

    def leaves_in(self, array: torch.nn.Module) -> bool:
        """Leave copies of what the graph writes, which is in the attributes of `array` since the capture."""
        now = tensors_left(array)
        self._left = {place: now[place].value.detach() for place in self._places if place in now}
        self._leave = leave_in(array)
        return bool(self._left)

    def __call__(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        for place, (own, new) in enumerate(zip(self._inputs, inputs, strict=True)):
            seen = self._seen[place]
            if seen is None or seen[0] is not new or seen[1] != new._version:
                copy_over(own, new)
                if place >= self._given:  # hyper-parameters seldom change; a batch is copied each time
                    self._seen[place] = (new, new._version)
        self._launch()
        if self._left:
            self._leave((place, tensor.clone()) for place, tensor in self._left.items())
        return self._losses.clone()  # the next launch writes into the graph's own
