# SPDX-License-Identifier: MIT
"""The MPS daemon and MIG instances as context managers that put the GPU back as it was, and MIG profiles by their
slices: their ids differ from one GPU to another.

Not run on a GPU yet: the commands and their order are tested against recorded answers of the tools.
"""

from __future__ import annotations

import re
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from .._runs.interrupts import deferred
from ..errors import Unavailable
from .nvidia import Environment, Tools, Undo, mps_environment, recover

__all__ = [
    "MIG_LIMIT", "Environment", "Tools", "mig_instances", "mig_unavailable", "mps_daemon", "mps_servers",
    "mps_unavailable", "whole_gpu",
]  # fmt: skip

MIG_LIMIT = 7  # instances of the GPUs that can be split most often


def mps_unavailable(device: str, tools: Tools | None = None) -> str | None:
    """Reason why MPS cannot be used here, or None."""
    return _reason(device, "MPS", lambda: _check_mps(tools or Tools()))


def mig_unavailable(device: str, tools: Tools | None = None) -> str | None:
    """Reason why MIG cannot be used here, or None."""
    return _reason(device, "MIG", lambda: _check_mig(tools or Tools()))


def _reason(device: str, what: str, check: Callable[[], None]) -> str | None:
    if device != "cuda":
        return f"{what} needs an NVIDIA GPU; this workflow runs on {device}"
    try:
        check()
    except Unavailable as error:
        return str(error)
    return None


def _check_mps(tools: Tools) -> None:
    tools.need("nvidia-smi", "the NVIDIA driver")
    tools.need("nvidia-cuda-mps-control", "the NVIDIA driver (packages nvidia-compute-utils, nvidia-cuda-mps)")
    recover(tools)
    if tools.mig_enabled():
        raise Unavailable(
            "MPS cannot be used with MIG: the GPU is in MIG mode", "nvidia-smi", "`nvidia-smi -mig 0` leaves it"
        )


def _check_mig(tools: Tools) -> None:
    tools.need("nvidia-smi", "the NVIDIA driver")
    recover(tools)
    enabled = tools.mig_enabled()
    if enabled is None:
        raise Unavailable("this GPU cannot be split (MIG: A100, H100 and later)", "nvidia-smi")
    if enabled and tools.mig_uuids():
        raise Unavailable(
            "the GPU has MIG instances already, which are not ours to destroy",
            "nvidia-smi -L",
            "`nvidia-smi mig -dci && nvidia-smi mig -dgi` removes them",
        )


@contextmanager
def mps_daemon(n: int, tools: Tools | None = None, exclusive: bool = True) -> Iterator[list[Environment]]:
    """Run a Multi-Process Service daemon; yield the environment of each of n client processes.

    If `exclusive`, the compute mode becomes EXCLUSIVE_PROCESS, so that no process bypasses the daemon; it has to stay
    as it is where a process that is no client is on the GPU, too. All is put back at the end.

    Raises:
        Unavailable: a tool is missing or refuses.
    """
    tools = tools or Tools()
    _check_mps(tools)
    before = tools.query("compute_mode")  # "Default", "Exclusive_Process", "Prohibited"
    with Undo(tools) as undo:
        with deferred():
            if exclusive and before.lower() != "exclusive_process":
                undo.note("compute_mode", before=before.upper())
                tools.smi("-c", "EXCLUSIVE_PROCESS")
            environment = _start_daemon(tools, undo)
        yield [dict(environment) for _ in range(n)]


def _start_daemon(tools: Tools, undo: Undo) -> Environment:
    """Start a daemon in a folder of its own; returns the environment of its clients."""
    folder = Path(tempfile.gettempdir()) / f"dnnsuite-mps-{uuid.uuid4().hex[:8]}"
    undo.note("mps", folder=str(folder))
    folder.mkdir(mode=0o700)
    environment = mps_environment(folder)
    for path in environment.values():
        Path(path).mkdir()
    visible = {"CUDA_VISIBLE_DEVICES": str(tools.gpu)}
    started = tools.run(["nvidia-cuda-mps-control", "-d"], "", {**environment, **visible})
    if started.returncode:
        raise Unavailable(
            f"the MPS daemon did not start: {started.stderr.strip()}",
            "",
            "end the one running: `echo quit | nvidia-cuda-mps-control`",
        )
    return environment


def mps_servers(client: Environment, tools: Tools | None = None) -> list[int]:
    """List process ids of the servers that a daemon has started for its clients; none before the first client.

    Args:
        client: the environment of a client, from `mps_daemon`.
    """
    answer = (tools or Tools()).run(["nvidia-cuda-mps-control"], "get_server_list\n", client)
    return [int(word) for word in answer.stdout.split() if word.isdigit()]


@contextmanager
def mig_instances(n: int, tools: Tools | None = None) -> Iterator[list[Environment]]:
    """Split the GPU into n instances; yield one environment per process, each seeing its own instance.

    MIG mode is switched on where it was off. Instances are destroyed and the mode put back at the end.

    Raises:
        Unavailable: the GPU cannot be split so, is in use, has instances already, or root is missing.
    """
    tools = tools or Tools()
    _check_mig(tools)
    with Undo(tools) as undo:
        with deferred():
            if not tools.mig_enabled():
                undo.note("mig_mode")
                tools.smi("-mig", "1")
                if not tools.mig_enabled():
                    raise Unavailable(
                        "MIG mode is pending, not on", "nvidia-smi", "it waits until no process uses the GPU"
                    )
            uuids = _make_instances(n, tools, undo)
        yield [{"CUDA_VISIBLE_DEVICES": uuid} for uuid in uuids]


def _make_instances(n: int, tools: Tools, undo: Undo) -> list[str]:
    """Make n instances on a GPU in MIG mode that has none; returns their ids."""
    profiles = choose_profiles(parse_profiles(tools.mig("-lgip")), n)
    undo.note("mig_instances", uuids=None)
    tools.mig("-cgi", ",".join(str(profile.id) for profile in profiles), "-C")
    uuids = tools.mig_uuids()
    if len(uuids) != n:
        raise Unavailable(f"asked for {n} MIG instances, nvidia-smi lists {len(uuids)}", "nvidia-smi -L")
    undo.note("mig_instances", uuids=uuids)
    return uuids


@contextmanager
def whole_gpu(n: int, tools: Tools | None = None) -> Iterator[list[Environment]]:
    """Give n processes the whole GPU; in MIG mode one instance has to span it.

    Raises:
        Unavailable: the GPU is in MIG mode and already split by another user.
    """
    tools = tools or Tools()
    has_tools = tools.which("nvidia-smi") is not None
    if has_tools:
        recover(tools)
    if not has_tools or not tools.mig_enabled():
        yield [{} for _ in range(n)]
        return
    with mig_instances(1, tools) as (environment,):
        yield [dict(environment) for _ in range(n)]


_LINE = re.compile(r"\|\s+\d+\s+MIG\s+(\d+)g\.(\d+)gb(\S*)\s+(\d+)\s+\d+/(\d+)\s")


class MigProfile(NamedTuple):
    """A kind of GPU instance: compute slices, memory in GB as in its name, id, and the most of them at once."""

    slices: int
    memory_gb: int
    id: int
    most: int


def parse_profiles(listing: str) -> list[MigProfile]:
    """Return the plain profiles in the output of `nvidia-smi mig -lgip`; those with extras (`+me`, `+gfx`) are left
    out."""
    found = [match.groups() for match in map(_LINE.match, listing.splitlines()) if match]
    return [MigProfile(int(g), int(gb), int(id), int(most)) for g, gb, extras, id, most in found if not extras]


def choose_profiles(profiles: Sequence[MigProfile], n: int) -> list[MigProfile]:
    """Profiles of n instances, larger ones first: the largest that fits n times.

    Where that is the smallest there is, slices that are left over make some of them the next larger one. On a GPU of
    seven slices: 7 · 3,3 · 2,2,2 · 2,2,2,1 · 2,2,1,1,1 · 2,1,1,1,1,1 · 1,1,1,1,1,1,1.

    Raises:
        Unavailable: the GPU cannot be split so often, or nothing was listed.
    """
    by_slices: dict[int, MigProfile] = {}
    for profile in profiles:  # of one size the one with the least memory, of which there are most
        known = by_slices.get(profile.slices)
        if known is None or profile.most > known.most:
            by_slices[profile.slices] = profile
    sizes = sorted(by_slices)
    fitting = [by_slices[size] for size in sizes if by_slices[size].most >= n]
    if not fitting or n < 1:
        most = max((profile.most for profile in by_slices.values()), default=0)
        raise Unavailable(f"this GPU cannot be split into {n} MIG instances (at most {most})", "nvidia-smi mig -lgip")
    chosen = fitting[-1]
    larger = next((by_slices[size] for size in sizes if size > chosen.slices), None)
    if chosen.slices > sizes[0] or larger is None:
        return [chosen] * n
    left = sizes[-1] - n * chosen.slices
    raised = min(left // (larger.slices - chosen.slices), larger.most, n)
    return [larger] * raised + [chosen] * (n - raised)
