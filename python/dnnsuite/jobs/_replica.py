# SPDX-License-Identifier: MIT
"""Processes that train one image classifier together, in worlds of several sizes."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterable
from multiprocessing.connection import Connection, Pipe, wait
from typing import TYPE_CHECKING, Any

from .._seeds import seed_all
from ..data import import_torchvision
from ..errors import Error, InvalidArgument
from . import distributed
from ._job import JobConfig

if TYPE_CHECKING:
    import torch

OPTIONS = {"network": "resnet101", "devices": 0, "image_size": 224, "steps": 10}
_RATE, _MOMENTUM = 0.01, 0.9


class Replica:
    """One of the processes: trains on images of normal noise that stay on the device, all of class 0; SGD 0.01."""

    def __init__(self, config: JobConfig) -> None:
        import torch

        self._config, self._options = config, {**OPTIONS, **config.options}
        self.place = distributed.place_of("all")
        self.device = distributed.device_of(self.place, torch.device(config.device))
        distributed.join(self.place, self.device)
        sizes = range(2, self.place.world_size + 1)
        self._groups: dict[int, Any] = {n: torch.distributed.new_group(list(range(n))) for n in sizes}
        random = torch.Generator(self.device).manual_seed(config.data_seed + self.place.rank)
        side, count = self._options["image_size"], config.batch_size
        self._images = torch.randn(count, 3, side, side, generator=random, device=self.device)
        self._classes = torch.zeros(count, dtype=torch.int64, device=self.device)
        self._dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(config.precision)
        self._scaler = torch.amp.GradScaler(self.device.type, enabled=config.precision == "fp16")

    def begin(self, world_size: int) -> int:
        """Make a new model, shared by the first `world_size` processes; return its number of parameters."""
        import torch
        from torch.nn.parallel import DistributedDataParallel

        seed_all(self._config.seed)
        model = network(self._options["network"]).to(self.device)
        self._classify: torch.nn.Module = model
        if world_size > 1:
            devices = [self.device.index] if self.device.type == "cuda" else None
            self._classify = DistributedDataParallel(model, devices, process_group=self._groups[world_size])
        self._optimizer = torch.optim.SGD(model.parameters(), _RATE, _MOMENTUM)
        return sum(p.numel() for p in model.parameters())

    def step(self) -> torch.Tensor:
        """Learn from the images; return the loss `[]`, without waiting for it."""
        import torch

        with torch.autocast(self.device.type, self._dtype, enabled=self._dtype is not None):
            scores = self._classify(self._images)
        loss = torch.nn.functional.cross_entropy(scores.float(), self._classes)
        self._optimizer.zero_grad()
        self._scaler.scale(loss).backward()
        self._scaler.step(self._optimizer)
        self._scaler.update()
        return loss.detach()


def network(name: str) -> Any:
    models = import_torchvision().models
    try:
        return models.get_model(name, weights=None)
    except ValueError:
        raise InvalidArgument(f"network {name!r} is no model of torchvision, such as resnet101") from None


class Team:
    """`size` processes, of which the first n can train together. They end when this one does.

    Raises Error with the message of one that fails or dies; the others are ended then.
    """

    def __init__(self, size: int, config: JobConfig) -> None:
        self.size = size
        self._connections: list[Connection] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": str(size)}
        for rank in range(size):
            ours, theirs = Pipe()
            environment = {**os.environ, **where, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            # A program of its own, for multiprocessing would import the caller's.
            program = f"from {__name__} import serve; serve({theirs.fileno()})"
            command = [sys.executable, "-c", program]
            self._processes.append(
                subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL)
            )
            theirs.close()
            ours.send(config.to_dict())
            self._connections.append(ours)
        self._answers(size)

    def begin(self, world_size: int) -> int:
        """Let the first `world_size` processes make a new model; return its number of parameters."""
        self._tell(world_size, ("begin", world_size))
        parameters: int = self._answers(world_size)[0]
        return parameters

    def step(self, world_size: int) -> None:
        """Have the processes of `begin` make a step, without waiting for it."""
        self._tell(world_size, ("step", 0))

    def wait(self, world_size: int) -> list[list[float]]:
        """Return each process's losses since the last call, once all of its steps are done."""
        self._tell(world_size, ("wait", 0))
        return self._answers(world_size)

    def close(self) -> None:
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.send(("close", 0))
        for process, connection in zip(self._processes, self._connections, strict=True):
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            connection.close()
        self._connections, self._processes = [], []

    def _tell(self, world_size: int, message: tuple[str, int]) -> None:
        for rank, connection in enumerate(self._connections[:world_size]):
            try:
                connection.send(message)
            except OSError as error:
                self._fail(rank, f"it is gone ({error})")

    def _answers(self, world_size: int) -> list[Any]:
        """Receive one answer of each, in order; the first failure is raised first."""
        missing = {connection: rank for rank, connection in enumerate(self._connections[:world_size])}
        found: dict[int, Any] = {}
        while missing:
            ready: Iterable[Any] = wait(list(missing))
            for connection in ready:
                rank = missing.pop(connection)
                try:
                    status, found[rank] = connection.recv()
                except (EOFError, OSError):  # of a pipe with something unread in it
                    self._fail(rank, "it died")
                if status == "failed":
                    self._fail(rank, found[rank])
        return [found[rank] for rank in range(world_size)]

    def _fail(self, rank: int, why: str) -> None:
        for process in self._processes:
            process.kill()
        size = self.size
        self.close()
        raise Error(f"process {rank} of the {size} that train together: {why}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serve(descriptor: int) -> None:
    """Run one process: obey commands until one ends it or the connection closes."""
    connection = Connection(descriptor)
    try:
        _obey(connection, JobConfig.from_dict(connection.recv()))
    except EOFError:
        pass
    except BaseException as error:
        with contextlib.suppress(OSError):
            connection.send(("failed", f"{type(error).__name__}: {error}"))
    finally:
        connection.close()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # as `distributed.finish` says


def _obey(connection: Connection, config: JobConfig) -> None:
    import torch

    cores = config.threads or len(os.sched_getaffinity(0))
    torch.set_num_threads(max(1, cores // distributed.place_of("all").world_size))
    replica = Replica(config)
    losses: list[torch.Tensor] = []
    connection.send(("done", None))
    for word, argument in iter(connection.recv, ("close", 0)):
        if word == "begin":
            connection.send(("done", replica.begin(argument)))
        elif word == "step":
            losses.append(replica.step())
        elif word == "wait":
            connection.send(("done", [float(loss) for loss in losses]))  # which waits for all of them
            losses.clear()
    distributed.finish()
