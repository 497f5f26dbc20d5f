# SPDX-License-Identifier: MIT
"""A step as a CUDA graph: one launch for all of its kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..batches import copy_over, own_copy, static_copy
from . import guards
from .looks import Replay
from .record import StepRecording
from .script import NotScriptable

Train = Callable[[Any, Sequence[Any]], torch.Tensor]


class CudaGraphs:
    """Maker of graphs of steps; those of one array share their memory, for only one runs at a time.

    Random numbers of torch's generator are allowed (a graph advances it at each launch). Where torch's own kernels add
    in no fixed order a replay is as close to the step as written as that is to itself.
    """

    seeded = True

    def __init__(self) -> None:
        self._pool: Any = None

    def fixed(self, batch: Any, hyper: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """Copy the inputs to where the graph will read them. The step that is recorded runs on the copies too, so that
        whatever is worked out once for a tensor has been by then."""
        return own_copy(batch), [{name: static_copy(value) for name, value in own.items()} for own in hyper]

    def prepare(
        self,
        train: Train,
        recording: StepRecording,
        batch: Any,
        hyper: Sequence[Any],
        inputs: list[torch.Tensor],
    ) -> CudaGraph:
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        return CudaGraph(train, batch, hyper, self._pool)

    def same(self, a: torch.Tensor, b: torch.Tensor) -> bool:
        return torch.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True)


class CudaGraph:
    """`graph(inputs)` copies the step's own tensors to where the graph reads them, launches it, and returns the losses.

    `batch` and `hyper` are the graph's own; no one else may write into them.
    Making one runs nothing: kernels that are launched while a stream is captured are only written down.
    """

    guard: Replay | None = None

    def __init__(self, train: Train, batch: Any, hyper: Sequence[Any], pool: Any) -> None:
        self._batch, self._hyper = batch, hyper
        self._inputs = guards.flatten(self._batch)[0]
        self._given = len(self._inputs)
        for own in self._hyper:
            self._inputs += own.values()
        self._seen: list[tuple[torch.Tensor, int] | None] = [None] * len(self._inputs)
        self._device = self._inputs[0].device
        self._graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.device(self._device):
                torch.cuda.synchronize()
                with torch.cuda.graph(self._graph, pool=pool):  # on a stream of its own
                    self._losses = train(self._batch, self._hyper)
        except RuntimeError as error:
            torch.cuda.synchronize()
            raise NotScriptable(f"CUDA refuses the capture: {str(error).splitlines()[0]}") from None

    def __call__(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        with torch.cuda.device(self._device):
            for place, (own, new) in enumerate(zip(self._inputs, inputs, strict=True)):
                seen = self._seen[place]
                if seen is None or seen[0] is not new or seen[1] != new._version:
                    copy_over(own, new)
                    if place >= self._given:  # hyper-parameters seldom change; a batch is copied each time
                        self._seen[place] = (new, new._version)
            self._graph.replay()
            return self._losses.clone()  # the next launch writes into the graph's own
