# SPDX-License-Identifier: MIT
"""Plans: the number of models that fit, the numbers to measure, and the points: modes × precisions × Bs. Checks of a
workflow's job before its directory is made: data, model, unfused parts, Bs that fit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import host
from .._runs.limits import memory_share_bytes
from .._runs.spec import told
from .._shown import size
from ..errors import Error, InvalidArgument
from . import modes
from .common_settings import CommonSettings
from .launch import Point, refused
from .modes import unfused_names
from .settings import WorkflowSettings

# Draws of the exponential that may bring nothing new before the smallest missing B is taken instead: a steep
# distribution (large lambd) would otherwise practically never reach the large Bs.
_DRAWS_WITHOUT_NEWS = 1000


class NothingFits(Error):
    """Raised when not even one model fits into the memory of the device."""


def find_max_B(try_B: Callable[[int], bool], limit: int | None = None, dry_run_repeats: int = 1) -> int:
    """Find the largest B for which `try_B` returns True, by doubling up to the first failure, then by bisection.

    Args:
        try_B: function that makes a dry run with B models and returns True if they fit. If B models fit, fewer are
            assumed to fit.
        limit: largest B to try; it is also tried before it is returned.
        dry_run_repeats: number of times that `try_B` must succeed for a B.

    Raises:
        NothingFits: `try_B(1)` is False.

    >>> from dnnsuite.workflow import find_max_B
    >>> tried = []
    >>> find_max_B(lambda B: tried.append(B) or B <= 13), tried
    (13, [1, 2, 4, 8, 16, 12, 14, 13])
    """
    if limit is not None and limit < 1:
        raise InvalidArgument(f"limit={limit}: at least one model must be allowed")
    if dry_run_repeats < 1:
        raise InvalidArgument(f"dry_run_repeats={dry_run_repeats}: a B is proven by at least one dry run")

    def fits(B: int) -> bool:
        return all(try_B(B) for _ in range(dry_run_repeats))

    if not fits(1):
        raise NothingFits("cannot fit a single model")
    passed, failed = 1, None
    while failed is None and passed != limit:
        B = 2 * passed if limit is None else min(2 * passed, limit)
        if fits(B):
            passed = B
        else:
            failed = B
    while failed is not None and failed - passed > 1:
        B = (passed + failed) // 2
        if fits(B):
            passed = B
        else:
            failed = B
    return passed


def expovariate_plan(max_B: int, max_num_Bs: int, lambd: float = 4.0, seed: int = 0) -> list[int]:
    """Choose the Bs to measure: 1, `max_B`, and numbers between them that are denser at small B.

    Args:
        max_B: largest number of models.
        max_num_Bs: number of Bs to choose; the result is shorter if there are not that many.
        lambd: density near 1; the numbers between are drawn as `round(Exp(lambd) * max_B)`.
        seed: the same seed gives the same plan.

    Returns:
        Distinct Bs, sorted.

    Raises:
        InvalidArgument: a number is below 1, or `lambd` is not positive.

    >>> from dnnsuite.workflow import expovariate_plan
    >>> plan = expovariate_plan(32, 5)
    >>> plan[0], plan[-1], len(plan)
    (1, 32, 5)
    """
    if max_B < 1:
        raise InvalidArgument(f"max_B={max_B}: must be at least 1")
    if max_num_Bs < 1:
        raise InvalidArgument(f"max_num_Bs={max_num_Bs}: must be at least 1")
    if not lambd > 0:
        raise InvalidArgument(f"lambd={lambd}: must be positive")
    if max_num_Bs >= max_B:
        return list(range(1, max_B + 1))
    generator = random.Random(seed)
    plan, idle = {1, max_B}, 0
    while len(plan) < max_num_Bs:
        B = round(generator.expovariate(lambd) * max_B)
        if idle >= _DRAWS_WITHOUT_NEWS:
            B = next(b for b in range(1, max_B) if b not in plan)
        if 1 <= B <= max_B and B not in plan:
            plan.add(B)
            idle = 0
        else:
            idle += 1
    return sorted(plan)


def fixed_Bs(settings: WorkflowSettings, mode: modes.Mode) -> list[int] | None:
    """Return the Bs to measure where no search is needed; None where it is."""
    if mode.limit_B == 1:
        return [1]
    if settings.plan:
        return [B for B in settings.plan if mode.limit_B is None or mode.limit_B >= B]
    if settings.max_B:
        return drawn_Bs(settings, mode.name, min(settings.max_B, mode.limit_B or settings.max_B))
    return None


def drawn_Bs(settings: WorkflowSettings, mode: str, max_B: int) -> list[int]:
    """Bs of a mode up to `max_B`; equal for modes with the same maximum and settings, to be compared B by B."""
    own = settings.search[mode]
    return expovariate_plan(max_B, own["max_num_Bs"], own["lambd"], settings.seed)


def planned_points(settings: WorkflowSettings) -> tuple[list[tuple[int, Point]], list[str]]:
    """Return (runs as repeat and point, remarks) as far as they are known without running anything.

    Where the largest B would be searched for, the preset's limit stands in for what the search will find.
    """
    points, remarks = [], []
    for name in settings.modes:
        mode = modes.get(name)
        if reason := mode.unavailable(settings.device):
            remarks.append(f"{name}: unavailable: {reason}")
            continue
        Bs = fixed_Bs(settings, mode)
        if Bs is None:
            limit = min((limit for limit in (mode.limit_B, settings.limit_B) if limit), default=None)
            Bs = drawn_Bs(settings, name, limit) if limit else [1]
            bound = f"at most {limit}" if limit else "without a limit"
            remarks.append(f"{name}: the largest B is searched for by dry runs (1, 2, 4, …), {bound}")
        points += [Point(name, precision, B) for precision in settings.precisions for B in Bs]
    return [(repeat, point) for repeat in range(settings.repeats) for point in points], remarks


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
