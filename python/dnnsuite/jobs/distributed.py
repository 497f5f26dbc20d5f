# SPDX-License-Identifier: MIT
"""A job in several processes: the rank of this one, and one model that all of them train.

torchrun, srun and other launchers give it in the environment (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR,
MASTER_PORT); without them, a job has one process and everything here does nothing.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from .._lazy import torch
from ..errors import Error, InvalidArgument


class Place(NamedTuple):
    """Rank of this process among all; `local_rank` counts those of its machine."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0


def place_of(scope: str) -> Place:
    """Read the rank from the environment, for a job of the scope `all`; others are alone.

    Raises InvalidArgument naming a variable that is missing or no place.
    """
    if scope != "all" or "WORLD_SIZE" not in os.environ:
        return Place()
    world_size = _number("WORLD_SIZE")
    if world_size < 1:
        raise InvalidArgument(f"WORLD_SIZE={world_size}: it must be at least 1")
    if world_size == 1:
        return Place()
    rank = _number("RANK")
    if not 0 <= rank < world_size:
        raise InvalidArgument(f"RANK={rank} is not one of WORLD_SIZE={world_size}")
    return Place(rank, world_size, _number("LOCAL_RANK") if "LOCAL_RANK" in os.environ else rank)


def _number(name: str) -> int:
    try:
        return int(os.environ[name])
    except KeyError:
        raise InvalidArgument(f"WORLD_SIZE is set, but {name} is not; torchrun sets them all") from None
    except ValueError:
        raise InvalidArgument(f"{name}={os.environ[name]!r} is not a number") from None


def device_of(place: Place, device: torch.device) -> torch.device:
    """Return the device of this process: of several on a machine, each has the GPU of its number."""
    if device.type == "cuda" and device.index is None and place.world_size > 1:
        # The launcher may show each process its own, as --gpus-per-task does.
        alone = torch.cuda.device_count() == 1
        return torch.device("cuda", 0 if alone else place.local_rank)
    return device


def join(place: Place, device: torch.device) -> None:
    """Connect to the other processes: over NCCL with GPUs, else over gloo. Does nothing if alone or connected already.

    Raises InvalidArgument if the environment does not say where, Error if they do not come.
    """
    if place.world_size == 1:
        return
    from torch import distributed

    if distributed.is_initialized():
        return
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if name not in os.environ:
            raise InvalidArgument(f"WORLD_SIZE is set, but {name} is not; torchrun sets them all")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "nccl" if device.type == "cuda" else "gloo"
    try:
        distributed.init_process_group(backend, rank=place.rank, world_size=place.world_size)
    except (RuntimeError, ValueError) as error:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise Error(f"process {place.rank} of {place.world_size} met no others at {where}: {error}") from error


def parallel(model: torch.nn.Module, place: Place, device: torch.device) -> torch.nn.Module:
    """Wrap `model` so that gradients are averaged over all processes; returns it unchanged if alone."""
    if place.world_size == 1:
        return model
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)


def sharded(model: torch.nn.Module, place: Place, device: torch.device) -> torch.nn.Module:
    """Split each parameter of `model`, its gradient and what an optimizer keeps of it over all processes (FSDP2).

    Members of its outermost lists, as the blocks of a decoder, are put together for their own forward and backward
    only, and the rest for the whole step. A model on the CPU comes to `device` part by part.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn import ModuleList, Sequential

    before = dict(model.named_parameters())
    mesh = init_device_mesh(device.type, (place.world_size,))
    for part in _members(model, ModuleList) or _members(model, Sequential):
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for name, parameter in model.named_parameters():
        vars(parameter).update(vars(before[name]))
    return model


def _members(model: torch.nn.Module, kind: type[torch.nn.Module]) -> list[torch.nn.Module]:
    """Members of the outermost modules of a kind, those that have parameters."""
    if isinstance(model, kind):
        return [each for each in model.children() if next(each.parameters(), None) is not None]
    return [part for child in model.children() for part in _members(child, kind)]


def whole(value: Any) -> Any:
    """Return `value` with each tensor that processes share put together on the CPU; all of them have to call it."""
    from torch.distributed.tensor import DTensor

    if isinstance(value, DTensor):
        return value.full_tensor().cpu()
    if isinstance(value, dict):
        return {key: whole(own) for key, own in value.items()}
    return [whole(own) for own in value] if isinstance(value, list) else value


def as_shared(value: Any, like: Any) -> Any:
    """Return this process's part of a whole tensor where `like` is shared and of its size; else `value`."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(like, DTensor) or getattr(value, "shape", None) != like.shape:
        return value
    own = value.to(like.device)
    return distribute_tensor(own, like.device_mesh, like.placements, src_data_rank=None)


def finish() -> None:
    """Disconnect from the others. Does nothing if alone. Idempotent.

    A process that used gloo then has to flush its output and end by `os._exit`: torch 2.13 aborts in one of ten
    interpreters that shut down after DistributedDataParallel over gloo.
    """
    from torch import distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()
