# SPDX-License-Identifier: MIT
"""Choice of the fastest of several ways to compute the same, measured on the machine for each shape.

Each way runs forward and backward on tensors like those given, in a separate thread outside of any recording, and on a
GPU as a CUDA graph, as it will run later. A way that takes more than twice the time of the fastest is measured once.
The choice is kept in the process and in this machine's table, so a captured step and the eager step use the same way.

Ways that have to be compiled are measured while a process has spent less than two seconds on them, so that a first step
does not wait for the kernels of a whole model; what is left is measured by later processes.

Nothing is measured inside a backward pass, where a checkpoint runs a forward again: the thread's own backward would
wait for the one that waits for the thread.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .._torch import backward_pass, capture_stream, end_failed_capture, transforming
from .table import Answer, key_of, table
from .trial import Trial

Way = Callable[..., Tensor]

_ROUNDS, _CALLS = 3, 5
_COMPILING_S = 2.0  # in one process
_SLOW = 2.0  # times the fastest way's seconds, from which on a way is not measured again
_chosen: dict[Any, str] = {}
_compiled_s = [0.0]  # spent so far
_streams: dict[torch.device, torch.cuda.Stream] = {}  # one for all measurements: torch's own streams come round


def fastest(
    what: str, ways: Mapping[str, Way], inputs: Sequence[Tensor | None], *facts: Any, compiled: Sequence[str] = ()
) -> str:
    """Return the name of the fastest of `ways`; the first one where it cannot be measured now.

    Args:
        what: name of the computation.
        ways: functions of tensors like `inputs`, by name.
        facts: other properties that distinguish computations, such as a stride; hashable.
        compiled: names of ways that are compiled when they first run.
    """
    first = next(iter(ways))
    if len(ways) == 1 or torch.compiler.is_compiling() or transforming() or backward_pass() != -1:
        return first
    device = next(x.device for x in inputs if x is not None)
    autocast = torch.is_autocast_enabled(device.type) and torch.get_autocast_dtype(device.type)
    key = (what, str(device), autocast, tuple(ways), facts, *map(_look, inputs))
    known = _chosen.get(key)
    if known is None:
        known = _known_or_measured(key, ways, inputs, autocast or None, compiled)
        if known is None:
            return first
        _chosen[key] = known
    return known


def forget() -> None:
    """Forget the choices of this process, and what they took; the machine's table stays."""
    _chosen.clear()
    _compiled_s[0] = 0.0


def _look(x: Tensor | None) -> Any:
    return None if x is None else (x.shape, x.stride(), x.dtype, x.requires_grad)


def _known_or_measured(
    key: Any,
    ways: Mapping[str, Way],
    inputs: Sequence[Tensor | None],
    autocast: torch.dtype | None,
    compiled: Sequence[str],
) -> str | None:
    device = next(x.device for x in inputs if x is not None)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    described = key_of(name, *map(str, key))
    known = table().get(described)
    if known is not None and known.way in ways and (not known.left or _compiled_s[0] >= _COMPILING_S):
        return str(known.way)
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return None  # nothing may wait for the device now
    answers: list[Answer | None] = []
    like = [_look(x) for x in inputs]
    measure = threading.Thread(
        target=lambda: answers.append(_measured(ways, like, device, autocast, compiled)), name=f"fastest {key[0]}"
    )
    measure.start()
    measure.join()
    if not answers or answers[0] is None:
        return None
    table().put(described, answers[0])
    return str(answers[0].way)


def _stand_in(look: Any, device: torch.device) -> Tensor | None:
    """Return a tensor of the same shape, strides and type; no generator draws its numbers."""
    if look is None:
        return None
    shape, strides, dtype, needs_grad = look
    size = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True)) if 0 not in shape else 0
    memory = torch.full((size,), 0.5 if dtype.is_floating_point else 0, dtype=dtype, device=device)
    return memory.as_strided(shape, strides).requires_grad_(needs_grad)


def _measured(
    ways: Mapping[str, Way],
    like: Sequence[Any],
    device: torch.device,
    autocast: torch.dtype | None,
    compiled: Sequence[str],
) -> Answer | None:
    """Try the ways that work here; return None if none does."""
    tensors = [_stand_in(look, device) for look in like]
    leaves = [x for x in tensors if x is not None and x.requires_grad]

    def run(way: Way) -> None:
        with torch.autocast(device.type, dtype=autocast) if autocast else contextlib.nullcontext():
            y = way(*tensors)
        if leaves:
            torch.autograd.grad(y, leaves, torch.ones_like(y))

    first: dict[str, float] = {}
    with torch.enable_grad() if leaves else torch.no_grad():
        calls, left = {}, []
        pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None  # only one graph runs at a time
        for name, way in ways.items():
            if name in compiled and _compiled_s[0] >= _COMPILING_S:
                left.append(name)
                continue
            begin = time.perf_counter()
            with contextlib.suppress(RuntimeError, NotImplementedError):  # not here: another way is
                calls[name] = _call(partial(run, way), device, pool)
                first[name] = calls[name]()
            if name not in first and pool is not None:  # it may still take itself for that of a capture
                pool = torch.cuda.graph_pool_handle()
            if name in compiled:
                _compiled_s[0] += time.perf_counter() - begin
        if not first:
            return None
        trial = Trial(list(first), turns=_ROUNDS, slow=_SLOW)
        for name, seconds_of_first in first.items():
            trial.add(seconds_of_first, name)
        while not trial.done:
            trial.add(calls[trial.now]())
    return trial.answer(left)


def seconds(call: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of one call: on a GPU the device's time, as a graph; else CPU time of this thread."""
    return _call(call, device)()


def _call(call: Callable[[], object], device: torch.device, pool: Any = None) -> Callable[[], float]:
    """Prepare a call; return a function that makes it and returns its seconds. Graphs of a `pool` share memory."""
    if device.type == "cuda":
        return partial(_replay_seconds, _graph_of(call, device, pool), device)
    call()
    return partial(_thread_seconds, call)


def _thread_seconds(call: Callable[[], object]) -> float:
    begin = time.thread_time()
    call()
    return time.thread_time() - begin


def _graph_of(call: Callable[[], object], device: torch.device, pool: Any) -> torch.cuda.CUDAGraph:
    """Capture a call. `torch.cuda.graph` would empty the allocator's cache at each of a model's hundred captures."""
    graph = torch.cuda.CUDAGraph()
    side = _streams.setdefault(device, capture_stream(device))
    with torch.cuda.device(device):
        torch.cuda.synchronize()  # what other streams make of what the call reads
        with torch.cuda.stream(side):
            for _ in range(2):  # libraries choose and allocate
                call()
            side.synchronize()
            free, whole = torch.cuda.mem_get_info(device)
            if free < whole / 4:  # what is cached for other streams cannot be given back during a capture
                torch.cuda.empty_cache()
            pool = torch.cuda.graph_pool_handle() if pool is None else pool
            try:
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                try:
                    call()
                finally:
                    graph.capture_end()
            except BaseException:
                end_failed_capture(device, side, pool)
                raise
    return graph


def _replay_seconds(graph: torch.cuda.CUDAGraph, device: torch.device) -> float:
    side = _streams[device]
    with torch.cuda.device(device), torch.cuda.stream(side):
        graph.replay()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(side)
        for _ in range(_CALLS):
            graph.replay()
        end.record(side)
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / _CALLS
