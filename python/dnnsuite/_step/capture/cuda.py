# SPDX-License-Identifier: MIT
"""A step as a CUDA graph: one launch for all of its kernels.

`CudaGraphs` makes replays as `Scripts` does for a CPU (`script.py`), by running the step's code once more under a
capture: a graph has the addresses of one shard's tensors, and serves no other.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..._torch import TorchDispatchMode, capture_stream, end_failed_capture, first_cause, foreach_copy_
from ...nn.random_streams import DrawnTogether
from ..arguments import compact, own_copy, static_copy
from . import guards
from .comparison import State
from .guards import leave_in, tensors_left
from .plan import StepRecording, operator_of
from .script import NotScriptable, Script
from .unseen import place_of_error

Train = Callable[[Any, Sequence[Any]], torch.Tensor]

_NEAR = 1e-3  # difference of two runs of a step, relative to its size, that kernels without a fixed order may leave
_TINY = 1e-5  # the same per element, where all is about zero
_ROUNDING = 3e-7  # relative, of numbers in 32 bits


class CudaDevice:
    """One GPU, with the calls that graphs need. The graphs of one array share memory, for only one runs at a time.

    A graph is kept until the device is dropped: libraries give the workspaces of its stream away with it, and the other
    graphs of that stream know them by address.
    """

    def __init__(self, home: torch.device) -> None:
        self.home = home
        self._pool: Any = None
        self._side: torch.cuda.Stream | None = None
        self._graphs: list[torch.cuda.CUDAGraph] = []

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        """Run a block on the stream that graphs are captured on, in order with the caller's stream."""
        if self._side is None:
            self._side = capture_stream(self.home)
        caller = torch.cuda.current_stream(self.home)
        self._side.wait_stream(caller)
        try:
            with torch.cuda.stream(self._side):
                yield
        finally:
            caller.wait_stream(self._side)

    def capture(self, step: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        """Capture a step without running it; return its launch, and the tensor that gets its result. After an error
        stream, generator and allocator are as before."""
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        # Other threads, as a loader that pins memory, may do meanwhile what a capture may not.
        how = {"pool": self._pool, "stream": self._side, "capture_error_mode": "thread_local"}
        caller = torch.cuda.current_stream(self.home)
        try:
            with torch.cuda.device(self.home):
                torch.cuda.synchronize()
                with torch.cuda.graph(graph, **how):
                    losses = step()
        except BaseException:
            end_failed_capture(self.home, caller, self._pool)
            self._pool = None  # it may still take itself for that of a capture
            raise
        self._graphs.append(graph)
        return graph.replay, losses

    def release(self) -> None:
        """Keep no graph any more, so that its memory is free once it is dropped."""
        self._graphs, self._pool = [], None
        torch.cuda.empty_cache()

    def spare_bytes(self) -> int:
        """Return how much of the device's memory copies of a state may take."""
        return int(torch.cuda.mem_get_info(self.home)[0]) // 8

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
    runs_code = True  # a capture runs the code of the step once more
    warms_up = True  # libraries make their workspaces in the first step, which no graph may

    def __init__(self, device: CudaDevice) -> None:
        self._device, self._made = device, weakref.WeakSet[CudaGraph]()
        self.home: torch.device | None = device.home

    def steps(self, train: Train, array: torch.nn.Module) -> Train:
        """Return the steps of `array` as they are recorded: their random streams are drawn from together."""
        draws = DrawnTogether(array, self._device.home)

        def drawn_together(batch: Any, hyper: Sequence[Any]) -> torch.Tensor:
            with draws.step():
                return train(batch, hyper)

        return drawn_together

    def recording(self) -> contextlib.AbstractContextManager[Any]:
        """Return a block for steps on the way to a graph: on its stream, so that libraries' handles and workspaces are
        those that it will use."""
        return self._device.stream()

    def home_of_copies(self, tensors: Sequence[torch.Tensor], audits: bool = False) -> torch.device | None:
        """Return the device for two copies of a state's tensors: the host, for an array is as large as fits; None for
        their own, if the step `audits`, as one in a thousand does, and the device has much memory left."""
        if not audits:
            return torch.device("cpu")
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return None if 2 * size <= self._device.spare_bytes() else torch.device("cpu")

    def release(self) -> None:
        """Free the memory of graphs, once none is used any more."""
        if not self._made:
            self._device.release()

    def repeat(self, state: State) -> CudaRepeat:
        """Return a judge of a replay from `state` against the step as written."""
        return CudaRepeat(self._device, state)

    def fixed(self, batch: Any, hyper: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """Copy the inputs to where the graph will read them. The recorded step runs on the copies too, so that anything
        computed once per tensor is computed before the capture."""
        return own_copy(batch), [{name: static_copy(value) for name, value in own.items()} for own in hyper]

    def prepare(self, train: Train, recording: StepRecording, batch: Any, hyper: Sequence[Any]) -> CudaGraph:
        graph = CudaGraph(self._device, train, recording, batch, hyper)
        self._made.add(graph)
        return graph


class CudaRepeat:
    """Comparison of a replay with the step as written, both from one state.

    Kernels without a fixed order of sums, and kernels that are chosen under a capture only, round differently; nearly
    always by far less than the bound of `_distance`. Where a gradient is all rounding error (of a bias before a batch
    norm), Adam turns it into a full step: there a replay may differ from the step as written by as much as that step
    changes when its parameters change by a rounding error.
    """

    can_undo = True

    def __init__(self, device: CudaDevice, state: State) -> None:
        self._device, self._draws = device, device.draws()
        self._tensors, self._copied = state.tensors, state.copied
        self._before = list(state.values)  # `State.exchange` puts others in their place

    def undo(self) -> None:
        """Give the state's tensors and the generator what they had before the replay."""
        self._set(self._before)
        self._device.put_draws_back(self._draws)

    def same_draws(self) -> None:
        """Let the next step draw the same random numbers as the last."""
        self._after = self._device.draws()
        self._device.put_draws_back(self._draws)

    def redo(self, values: Sequence[torch.Tensor]) -> None:
        """Give the state's tensors and the generator what they had after the replay: `values` of the tensors."""
        self._set(values)
        self._device.put_draws_back(self._after)

    def agrees(
        self, replayed: Sequence[torch.Tensor], written: Sequence[torch.Tensor], step: Callable[[], torch.Tensor]
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
        after, draws = [self._copied(tensor) for tensor in self._tensors], self._device.draws()
        try:
            self.undo()
            for tensor in self._tensors:
                if tensor.requires_grad and tensor.dim():
                    inner = max((d for d in range(tensor.dim()) if tensor.size(d) > 1), default=0)
                    by_place = tensor.detach().transpose(0, inner)  # in place: the device may be full
                    by_place[::2].mul_(1 - _ROUNDING)
                    by_place[1::2].mul_(1 + _ROUNDING)
            return [step().detach(), *(self._copied(tensor) for tensor in self._tensors)]
        finally:
            self._set(after)
            self._device.put_draws_back(draws)

    def _set(self, values: Sequence[torch.Tensor]) -> None:
        for tensor, value in zip(self._tensors, values, strict=True):
            tensor.detach().copy_(value)


_PIECE = 2**20  # numbers that are compared at a time: in float64, and with masks, they take 20 times a float32's bytes


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the norm of a - b over the largest difference that rounding explains; infinity if they differ in integers,
    or in the places of NaN and infinity. `a` may lie on the host."""
    if not (a.is_floating_point() or a.is_complex()):
        return 0.0 if torch.equal(a.to(b.device), b) else math.inf
    wide = torch.complex128 if a.is_complex() else torch.float64
    apart, size = b.new_zeros((), dtype=torch.float64), b.new_zeros((), dtype=torch.float64)
    wrong = b.new_zeros((), dtype=torch.bool)
    for ours, other in _pieces(a, b):
        ours, other = ours.to(b.device).to(wide), other.to(wide)
        same = torch.isfinite(other)
        wrong |= (same != torch.isfinite(ours)).any()
        wrong |= (torch.where(same, 0, ours).nan_to_num() != torch.where(same, 0, other).nan_to_num()).any()
        apart += torch.where(same, ours - other, 0).abs().square().sum()
        size += torch.where(same, other, 0).abs().square().sum()
    if wrong:
        return math.inf
    return float(apart.sqrt() / (_NEAR * size.sqrt() + _TINY * max(1, b.numel()) ** 0.5))


def _pieces(a: torch.Tensor, b: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Cut two tensors of one shape into parts of about `_PIECE` numbers, along dimensions of any size."""
    if b.numel() <= _PIECE or b.dim() == 0:
        yield a, b
        return
    longest = max(range(b.dim()), key=b.size)
    parts = -(-b.numel() // _PIECE)
    for x, y in zip(a.chunk(parts, longest), b.chunk(parts, longest), strict=True):
        yield from _pieces(x, y)


class Answers(TorchDispatchMode):
    """Dispatch mode that answers Python's looks at values as a recording of the same step did: under a capture no
    kernel has run, and a graph is made only of steps in which all these values hold."""

    def __init__(self, recording: StepRecording) -> None:
        super().__init__()
        self._left = iter(recording.values)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operator = operator_of(func)
        if operator is not None and operator.looks:
            name, value = next(self._left, ("", None))
            if name == operator.name:
                return value
        return func(*args, **(kwargs or {}))


class CudaGraph:
    """`graph(inputs)` copies the step's own tensors to where the graph reads them, launches it, and returns the losses.

    `batch` and `hyper` are the graph's own; nothing else may write into them. Making one runs nothing: kernels launched
    during a capture are only recorded.
    """

    def __init__(
        self, device: CudaDevice, train: Train, recording: StepRecording, batch: Any, hyper: Sequence[Any]
    ) -> None:
        self._device, self.program = device, object()  # one of its own: a graph knows the addresses of one shard
        batch_tensors = guards.flatten(batch)[0]
        self._given, self._places = len(batch_tensors), list(recording.left)
        self._left: dict[tuple[int, str], torch.Tensor] = {}
        # What is copied into, without the dimensions that repeat one value.
        self._batch = [compact(tensor) for tensor in batch_tensors]
        self._hyper = [compact(value) for own in hyper for value in own.values()]
        self._seen: list[tuple[torch.Tensor, int] | None] = [None] * len(self._hyper)
        # A graph knows addresses alone: what lies there has to stay, also if the model puts another in its place.
        self._kept, self._written = ([*recording.external.values(), *batch_tensors], recording.written_externals())

        def step() -> torch.Tensor:
            with Answers(recording):
                return train(batch, hyper)

        try:
            self._launch, self._losses = device.capture(step)
        except (RuntimeError, ValueError) as error:
            first = first_cause(error)
            why = (str(first).splitlines() or [type(first).__name__])[0]
            raise NotScriptable(f"CUDA refuses the capture: {why}{place_of_error(first)}") from None

    def written(self) -> Sequence[torch.Tensor]:
        return self._written

    def leaves_in(self, array: torch.nn.Module) -> bool:
        """Leave copies of what the graph writes, which is in the attributes of `array` since the capture."""
        now = tensors_left(array)
        self._left = {place: now[place].value.detach() for place in self._places if place in now}
        self._leave = leave_in(array)
        return bool(self._left)

    def __call__(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        new = [compact(tensor) for tensor in inputs[: self._given]]
        if new:
            foreach_copy_(self._batch, new, non_blocking=True)
        for place, value in enumerate(inputs[self._given :]):
            seen = self._seen[place]  # hyper-parameters seldom change; a batch is copied each time
            if seen is None or seen[0] is not value or seen[1] != value._version:
                self._hyper[place].copy_(compact(value), non_blocking=True)
                self._seen[place] = value, value._version
        self._launch()
        if self._left:
            self._leave((place, tensor.clone()) for place, tensor in self._left.items())
        return self._losses.clone()  # the next launch writes into the graph's own


Replay = Script | CudaGraph
