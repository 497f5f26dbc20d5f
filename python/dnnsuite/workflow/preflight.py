# SPDX-License-Identifier: MIT
"""Checks of a workflow's job before its directory is made: data, model, unfused parts, Bs that fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import host
from .._runs.limits import memory_share_bytes
from .._runs.spec import told
from .._shown import size
from ..errors import Error, InvalidArgument
from . import modes
from .common_settings import CommonSettings
from .launch import refused
from .partial import unfused_names
from .plan import fixed_Bs
from .settings import WorkflowSettings

_TIMES_PARAMETERS = 2  # an array has at least its weights and their gradients


def check(settings: WorkflowSettings, asked: Mapping[str, Any]) -> None:
    """Refuse settings that could not run.

    Args:
        asked: the options a user gave; Bs of a preset are left to the runs.

    Raises:
        InvalidArgument, Unavailable: data are missing, a name of `--unfused` is no module, a B cannot fit.
    """
    names = [unfused_names(settings.job, mode, settings.units) for mode in settings.modes]
    model_bytes = weigh(settings, max(names, key=len))
    if asked.get("plan") or asked.get("max_B"):
        for name in settings.modes:
            mode = modes.get(name)
            if mode.unavailable(settings.device) is None:
                for B in fixed_Bs(settings, mode) or []:
                    _check_room(settings, mode, B, model_bytes)


def weigh(settings: CommonSettings, unfused: Sequence[str] = ()) -> int:
    """Load the job's data, make one model, and return the bytes of its parameters; 0 for a job that does not tell.

    Raises:
        InvalidArgument, Unavailable: data are missing or an option is wrong; the message names it.
        Error: the job's own code fails; the message has its file and line.
    """
    from .. import jobs

    kind = jobs.get(settings.job, swept=True)
    config = jobs.JobConfig(
        device=settings.device, batch_size=settings.batch_size, seed=settings.seed, data_seed=settings.seed,
        data=settings.data, dataroot=settings.dataroot, options=dict(settings.options), unfused=list(unfused),
    )  # fmt: skip
    try:
        return int(kind.inspect(config))
    except (Error, OSError):
        raise
    except Exception as error:
        raise Error(f"job {settings.job}: its data or its model cannot be made: {told(error)}") from error


def _check_room(settings: WorkflowSettings, mode: modes.Mode, B: int, model_bytes: int) -> None:
    on_cpu, processes = settings.device == "cpu", mode.processes(B)
    if why := refused(processes, memory_share_bytes(processes) if on_cpu else None):
        raise InvalidArgument(f"B={B} does not fit in mode {mode.name}: {why}")
    free = memory_share_bytes(1) if on_cpu else max(gpu.memory_bytes for gpu in host.gpus())
    least = B * _TIMES_PARAMETERS * model_bytes
    if least > free:
        most = free // (_TIMES_PARAMETERS * model_bytes)
        raise InvalidArgument(
            f"B={B} does not fit in mode {mode.name}: weights and gradients of {B} models take {size(least)}, and "
            f"there are {size(free)}; name at most {most}"
        )
