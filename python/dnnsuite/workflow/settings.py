# SPDX-License-Identifier: MIT
"""Settings of a workflow: options of a user with every default resolved and every value checked, and HFTA's flags of
the search for the largest B and of the Bs drawn from it, for each mode."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import host
from ..errors import InvalidArgument
from . import modes
from .common_settings import CommonSettings, at_least, one_of, positive, resolve_common
from .modes import is_partial, number_of

if TYPE_CHECKING:
    from .._runs.starters import Share

# For what a job's preset leaves open.
_DEFAULTS: dict[str, Any] = {
    "epochs": 2, "iters_per_epoch": 10, "repeats": 3, "batch_size": 32, "max_B": None, "max_num_Bs": 5,
    "lambd": 4.0, "dry_run_iters": 2, "equality_steps": None, "timeout_s": 3600.0, "goal": 0.05,
    "budget_s": None,
}  # fmt: skip


# Of HFTA's protocol and of a demonstration; schedules go on every five.
_EQUALITY_STEPS = {"paper": 20, "default": 10, "quick": 10}

SEARCHED = ("concurrent", "mps", "mig", "hfta")  # modes whose largest B is searched for
# Name → (kind of number, meaning).
FLAGS: dict[str, tuple[type, str]] = {
    "dry_run_repeats": (int, "Number of dry runs to test a B."),
    "max_num_Bs": (int, "Number of Bs to measure."),
    "lambd": (float, "Density of the Bs near 1."),
    "dry_run_epochs": (int, "Epochs of a dry run."),
    "dry_run_iters_per_epoch": (int, "Iterations of its epochs."),
}

# Options that a user may give, by the names of their fields.
OPTIONS = frozenset({
    "device", "device_model", "modes", "precisions", "bf16", "repeats", "epochs", "iters_per_epoch", "batch_size",
    "seed", "preset", "plan", "max_B", "max_num_Bs", "lambd", "data", "dataroot", "threads", "timeout_s", "plugins",
    "options", "monitor", "units", "devices", "goal", "budget_s",
    *(f"{mode}_{name}" for mode in SEARCHED for name in FLAGS),
})  # fmt: skip


@dataclass(frozen=True)
class WorkflowSettings(CommonSettings):
    """Settings that decide what a workflow measures. Two workflows with equal settings can share a directory."""

    device_model: str
    modes: list[str]
    precisions: list[str]
    repeats: int
    plan: list[int] | None  # Bs to measure as given; None: found by search
    max_B: int | None  # the largest B as given, taken without search
    limit_B: int | None  # where the search stops, from the preset
    max_num_Bs: int
    lambd: float
    dry_run_iters: int
    equality_steps: int
    monitor: str = "auto"
    search: dict[str, dict[str, Any]] = field(default_factory=dict)  # mode → as in `search.FLAGS`
    units: list[list[str]] = field(default_factory=list)  # to leave unfused in turn; empty: the job's own
    devices: list[str] = field(default_factory=list)  # that divide the repeats; empty: the one device
    goal: float = 0.05  # half width of a speedup's interval, relative, at which it is known
    budget_s: float | None = None  # of a repeat, with the start of its workers; None: epochs of a fixed number


def resolve(job: str, asked: Mapping[str, Any]) -> WorkflowSettings:
    """Resolve the settings for a job from the options given, the job's preset and the machine.

    Args:
        job: a registered job's name.
        asked: option → value; None or absent means not given. `modes`, `precisions`, `plan` and `units` are
            sequences of strings that may hold commas.

    Raises:
        InvalidArgument: a value is refused; the message lists what is accepted.
        Unavailable: the device asked for is not here.
    """
    from ..profiler.monitor import check_monitor

    given = {name: value for name, value in asked.items() if value is not None}
    shares = _shares(given)
    kind, preset, common = resolve_common(job, given, _DEFAULTS)
    device = common["device"]
    plan, max_B = _plan(given.get("plan")), given.get("max_B")
    if plan is None and max_B is None and preset.get("plan"):
        plan = list(preset["plan"])
    if plan and max_B is not None:
        raise InvalidArgument("--plan and --max-B exclude each other: the plan is the Bs themselves")
    if max_B is not None:
        at_least("max_B", max_B)
    fixed = "epochs" in given or "iters_per_epoch" in given
    budget_s = given.get("budget_s", None if fixed else preset["budget_s"])
    goal = positive("goal", given.get("goal", preset["goal"]))
    if goal >= 1:
        raise InvalidArgument(f"--goal {goal}: a part of the speedup, e.g. 0.05 for 5 %")
    return WorkflowSettings(
        **common,
        device_model=_slug(given["device_model"]) if "device_model" in given else _device_model(device),
        modes=_modes(given.get("modes")) if not shares else _modes_beside(given.get("modes")),
        precisions=_precisions(kind, device, given.get("precisions"), bool(given.get("bf16"))),
        repeats=at_least("repeats", given.get("repeats", _as_often(preset["repeats"], len(shares)))),
        plan=plan, max_B=max_B, limit_B=None if plan or max_B else preset["max_B"],
        max_num_Bs=at_least("max_num_Bs", given.get("max_num_Bs", preset["max_num_Bs"])),
        lambd=positive("lambd", given.get("lambd", preset["lambd"])),
        dry_run_iters=preset["dry_run_iters"],
        equality_steps=preset["equality_steps"] or _EQUALITY_STEPS[common["preset"]],
        monitor=check_monitor(given.get("monitor", "auto")),
        search=resolve_search(given, preset, common["preset"] == "paper"),
        units=_units(given.get("units")),
        devices=[share.name for share in shares],
        goal=goal, budget_s=None if budget_s is None else positive("budget_s", budget_s),
    )  # fmt: skip


def _shares(given: dict[str, Any]) -> list[Share]:
    """Return the devices that divide the repeats, none where they were not named; note their kind as the device."""
    if not given.get("devices"):
        return []
    if given.get("device", "auto") != "auto":
        raise InvalidArgument(f"--device {given['device']} beside --devices: give one of them")
    from .._runs.starters import shares_of

    shares = shares_of(given["devices"], given.get("threads", host.num_cpus()))
    given["device"] = shares[0].device
    kinds = {gpu.name for gpu in host.gpus()} if shares[0].device == "cuda" else set()
    if len(kinds) > 1:
        raise InvalidArgument(
            f"--devices {','.join(given['devices'])}: there are {' and '.join(sorted(kinds))}, whose rates are not "
            "to be pooled; run a workflow on each kind"
        )
    return shares


def _as_often(repeats: int, devices: int) -> int:
    """Return the preset's repeats, or a few more so that each device makes as many."""
    return repeats if not devices else -(-repeats // devices) * devices


def _modes_beside(values: Sequence[str] | None) -> list[str]:
    """Return the modes for devices that are measured beside each other."""
    chosen = _modes(values)
    for name in chosen:
        if modes.get(name).changes_machine:
            raise InvalidArgument(
                f"--modes {name} beside --devices: it changes a GPU's own modes; measure it on one device"
            )
    return chosen


def _precisions(job: Any, device: str, asked: Sequence[str] | None, bf16: bool) -> list[str]:
    """Precisions asked for, else the job's default; and bf16 if it is asked for beside them."""
    offered = list(job.precisions(device))
    chosen = _several("precision", asked, offered) if asked else list(job.default_precisions(device))
    if bf16 and "bf16" not in chosen:
        chosen.append(one_of("precision", "bf16", offered))
    return chosen


def _device_model(device: str) -> str:
    return _slug(host.gpus()[0].name) if device == "cuda" else ""


def _slug(name: str) -> str:
    """`NVIDIA H200` → `h200`, for file names."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"(?i)nvidia|tesla|geforce", "", name).lower()).strip("-")


def _plan(values: Sequence[str] | None) -> list[int] | None:
    if not values:
        return None
    try:
        plan = sorted({int(value) for value in _split(values)})
    except ValueError:
        raise InvalidArgument(f"--plan {','.join(map(str, values))}: expected whole numbers, e.g. 1,2,4,8") from None
    if not plan or plan[0] < 1:
        raise InvalidArgument(f"--plan {','.join(map(str, values))}: every B must be at least 1")
    return plan


def _units(values: Sequence[str] | None) -> list[list[str]]:
    """Units of modules, one of each text, as `conv1,bn1`."""
    return [
        names for value in values or () if (names := _split(value if isinstance(value, (list, tuple)) else [value]))
    ]


def _several(what: str, values: Sequence[str] | None, accepted: list[str]) -> list[str]:
    """Return the values in the accepted order, once each; all of them when none were given."""
    if not values:
        return accepted
    chosen = {one_of(what, value, accepted) for value in _split(values)}
    return [value for value in accepted if value in chosen]


def _modes(values: Sequence[str] | None) -> list[str]:
    """Return the modes in the order of `modes.MODES`, then partly fused ones by the number of units left unfused."""
    partial = {value for value in _split(values or ()) if is_partial(value)}
    others = [value for value in _split(values or ()) if value not in partial]
    whole = _several("mode", others, list(modes.MODES)) if others else [] if partial else modes.DEFAULT
    return [*whole, *sorted(partial, key=lambda mode: int(number_of(mode) or 0))]


def _split(values: Sequence[str]) -> list[str]:
    return [part.strip() for value in values for part in str(value).split(",") if part.strip()]


_OF_SEARCH = {
    "dry_run_repeats": 1, "max_num_Bs": 5, "lambd": 4.0, "dry_run_epochs": 1, "dry_run_iters_per_epoch": 2,
}  # fmt: skip
_HFTA = {
    mode: {
        "dry_run_repeats": repeats, "max_num_Bs": Bs, "lambd": 4.0, "dry_run_epochs": 2,
        "dry_run_iters_per_epoch": iters,
    }
    for mode, repeats, Bs, iters in (
        ("concurrent", 10, 5, 10), ("mps", 10, 5, 10), ("mig", 1, 5, 10), ("hfta", 1, 10, 3),
    )
}  # fmt: skip


def as_flag(mode: str, name: str) -> str:
    """Return the command line's option, as HFTA spells it: `--hfta-max-num-Bs`."""
    return f"--{mode}-{name.replace('_', '-')}"


def resolve_search(asked: Mapping[str, Any], preset: Mapping[str, Any], paper: bool) -> dict[str, dict[str, Any]]:
    """Resolve the settings of each mode: its own flag, else the flag for all modes, else the preset's.

    Args:
        asked: `hfta_max_num_Bs` and the like, and `max_num_Bs` and `lambd` for all modes.
        preset: the job's; with `search`, settings of single modes.
        paper: HFTA's own values stand where the preset says nothing of a mode.

    Raises:
        InvalidArgument: a value that is too small, by its flag.
    """
    common = {name: preset[name] for name in ("max_num_Bs", "lambd") if name in preset and not paper}
    if "dry_run_iters" in preset and not paper:
        common["dry_run_iters_per_epoch"] = preset["dry_run_iters"]
    given = {name: asked[name] for name in ("max_num_Bs", "lambd") if asked.get(name) is not None}
    found = {}
    for mode in SEARCHED:
        own = {n: asked[f"{mode}_{n}"] for n in FLAGS if asked.get(f"{mode}_{n}") is not None}
        base = _HFTA[mode] if paper else _OF_SEARCH
        found[mode] = {**base, **common, **dict(preset.get("search", {}).get(mode, {})), **given, **own}
        _check(mode, own, found[mode])
    return found


def _check(mode: str, own: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        flag = as_flag(mode, name) if name in own else f"--{name.replace('_', '-')}"
        if name == "lambd" and not value > 0:
            raise InvalidArgument(f"{flag} {value}: must be positive")
        if name != "lambd" and not value >= 1:
            raise InvalidArgument(f"{flag} {value}: must be at least 1")
