# SPDX-License-Identifier: MIT
"""Plain models of torch, each with an optimizer of its own: one after the other, as CUDA graphs, in processes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
import ways
from setting import Setting
from ways import Way
from workloads import WORKLOADS, Workload

from dnnsuite.errors import Error, Unavailable
from dnnsuite.workflow.devices import Tools, mps_daemon, mps_servers, mps_unavailable

LR = 1e-4
"""Small enough that no model's softmax saturates soon: its gradients would be denormal numbers, which take a processor
twice as long, and the comparison would be of training progress, not of variants."""
_BEFORE_CAPTURE = 3  # steps: what libraries and the optimizer make once is made by then


def built(workload: Workload, seed: int, setting: Setting) -> torch.nn.Module:
    """The model of a seed, the same on every device."""
    torch.manual_seed(seed)
    return workload.make().to(setting.device)


def all_built(workload: Workload, B: int, setting: Setting) -> list[torch.nn.Module]:
    return [built(workload, seed, setting) for seed in range(B)]


def rates(B: int) -> list[float]:
    return [_rate(seed) for seed in range(B)]


def _rate(seed: int) -> float:
    return LR * (1 + seed / 16)


def drawn(workload: Workload, setting: Setting) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return setting.put(workload.batch())


def trainer(
    workload: Workload,
    seed: int,
    setting: Setting,
    prepare: Callable[[torch.nn.Module], torch.nn.Module] = lambda model: model,
    compiled: bool = False,
    mode: str | None = None,
    **adam: Any,
) -> Callable[[], None]:
    """One step of one plain model; `mode` is torch.compile's, where it is `compiled`."""
    model = prepare(built(workload, seed, setting))
    optimizer = torch.optim.Adam(model.parameters(), lr=_rate(seed), **adam)
    batch = drawn(workload, setting)
    loss = setting.under_autocast(torch.compile(workload.loss, mode=mode) if compiled else workload.loss)
    return setting.step(optimizer, lambda: loss(model, *batch))


def serial(workload: Workload, B: int, setting: Setting, **options: Any) -> Way:
    return _in_turns([trainer(workload, seed, setting, **options) for seed in range(B)], setting)


def _in_turns(steps: list[Callable[[], None]], setting: Setting) -> Way:
    def all_models() -> None:
        for step in steps:
            step()

    return ways.repeat(all_models, setting.wait)


def channels_last(model: torch.nn.Module) -> torch.nn.Module:
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


class Graphed:
    """A step as a CUDA graph. It holds the step, whose tensors the graph reads and writes.

    It is captured on a stream of its own: cuBLAS has a workspace for each stream, in whose counters the kernels of two
    graphs that run at once would wait for each other for ever.
    """

    def __init__(self, step: Callable[[], None], pool: Any) -> None:
        self._step, self._graph = step, torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_BEFORE_CAPTURE):
                step()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(self._graph, pool=pool, stream=side):
            step()

    def __call__(self) -> None:
        self._graph.replay()


def graphed(workload: Workload, B: int, setting: Setting) -> Way:
    """The graphs share their memory: they are replayed in the order in which they were made, one at a time."""
    if not setting.on_gpu:
        raise Unavailable("a CUDA graph needs --device cuda")
    pool = torch.cuda.graph_pool_handle()
    steps = [trainer(workload, seed, setting, fused=True, capturable=True) for seed in range(B)]
    return _in_turns([Graphed(step, pool) for step in steps], setting)


def graphed_streams(workload: Workload, B: int, setting: Setting) -> Way:
    """A graph for each model, replayed on a stream of its own, so that kernels of several models run at once."""
    if not setting.on_gpu:
        raise Unavailable("a CUDA graph needs --device cuda")
    steps = [trainer(workload, seed, setting, fused=True, capturable=True) for seed in range(B)]
    graphs = [Graphed(step, torch.cuda.graph_pool_handle()) for step in steps]
    streams = [torch.cuda.Stream() for _ in graphs]

    def all_models() -> None:
        caller = torch.cuda.current_stream()
        for stream, graph in zip(streams, graphs, strict=True):
            stream.wait_stream(caller)
            with torch.cuda.stream(stream):
                graph()
        for stream in streams:
            caller.wait_stream(stream)

    return ways.repeat(all_models, setting.wait)


def _replica(name: str, seed: int, setting: Setting) -> Way:
    setting.enter()
    adam = {"fused": True} if setting.on_gpu else {}
    return ways.repeat(trainer(WORKLOADS[name], seed, setting, **adam), setting.wait)


def concurrent(workload: Workload, B: int, setting: Setting) -> Way:
    """A process for each model. On a GPU they take turns there, each with the strongest of torch's Adams."""
    return ways.concurrent(_replica, [(workload.name, seed, setting) for seed in range(B)], setting.threads)


def concurrent_mps(workload: Workload, B: int, setting: Setting, tools: Tools | None = None) -> Way:
    """The same through an MPS daemon of our own, which lets kernels of several processes run at once.

    Raises Unavailable where MPS cannot be started.
    """
    if not setting.on_gpu:
        raise Unavailable("MPS needs --device cuda")
    tools = tools or Tools(gpu_id(setting.device))
    if reason := mps_unavailable("cuda", tools):
        raise Unavailable(reason)
    with ExitStack() as undo:
        # This process is on the GPU already, which nobody could be in exclusive mode.
        own = undo.enter_context(mps_daemon(1, tools, exclusive=False))[0]
        # The daemon has one GPU, and a process has to name it as the daemon does to find it as its first.
        environment = {**own, "CUDA_VISIBLE_DEVICES": str(tools.gpu)}
        there = replace(setting, device="cuda:0")
        arguments = [(workload.name, seed, there) for seed in range(B)]
        replicas = ways.concurrent(_replica, arguments, setting.threads, environment)
        undo.callback(replicas.close)
        if not mps_servers(own, tools):
            raise Error("the MPS daemon serves no process: the replicas went past it")
        return ways.Closing(replicas, undo.pop_all().close)


def gpu_id(device: str) -> str:
    """The driver's name of a device of torch: its number is another one under CUDA_VISIBLE_DEVICES."""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"
