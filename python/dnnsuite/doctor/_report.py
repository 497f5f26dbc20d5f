# SPDX-License-Identifier: MIT
"""The list of checks, and how it is printed.

A check looks and changes nothing; whatever goes wrong inside one becomes its result. Most machines lack
something: only torch, the instrument module and the operators are essential.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from .._shown import wrapped
from . import _gpu, _machine
from ._finding import Finding

_NAME_WIDTH = 22


@dataclass(frozen=True)
class Check:
    """One check and its finding.

    Attributes:
        name: name of the check.
        group: `software`, `gpu`, `machine` or `settings`.
        status: `ok`, `warning` (works, but read this) or `missing`.
        detail: finding, with versions and units.
        remedy: way out; empty where nothing is wrong.
        essential: nothing runs without it.
    """

    name: str
    group: str
    status: str
    detail: str
    remedy: str = ""
    essential: bool = False

    @property
    def ok(self) -> bool:
        """True if nothing needs to be done."""
        return self.status == "ok"


_ESSENTIAL = ("torch", "instruments", "operators")
CHECKS: tuple[tuple[str, str, Callable[[], Finding]], ...] = (
    ("software", "python", _machine.python),
    ("software", "torch", _machine.torch),
    ("software", "torch names", _machine.torch_names),
    ("software", "instruments", _machine.instruments),
    ("software", "operators", _machine.operators),
    ("software", "packages", _machine.packages),
    ("software", "torchvision", _machine.torchvision),
    ("software", "notebooks", _machine.notebooks),
    ("gpu", "driver", _gpu.driver),
    ("gpu", "torch CUDA", _gpu.torch_cuda),
    ("gpu", "CUDA operators", _gpu.cuda_operators),
    ("gpu", "NVML", _gpu.nvml),
    ("gpu", "CUPTI", _gpu.cupti),
    ("gpu", "GPU counters", _gpu.counters),
    ("gpu", "NVTX", _gpu.nvtx),
    ("gpu", "MPS", _gpu.mps),
    ("gpu", "MIG", _gpu.mig),
    ("gpu", "nvcc", _gpu.nvcc),
    ("machine", "CPUs", _machine.cpus),
    ("machine", "CPU quota", _machine.cpu_quota),
    ("machine", "clock control", _machine.clocks),
    ("machine", "load", _machine.load),
    ("machine", "memory", _machine.memory),
    ("machine", "huge pages", _machine.huge_pages),
    ("machine", "hardware counters", _machine.hardware_counters),
    ("machine", "control groups", _machine.control_groups),
    ("settings", "cache folder", _machine.cache_folder),
    ("settings", "environment", _machine.environment),
)


def report() -> list[Check]:
    """Make every check; takes a second or two, most of it the import of torch. Raises nothing."""
    return [_look(group, name, look) for group, name, look in CHECKS]


def _look(group: str, name: str, look: Callable[[], Finding]) -> Check:
    try:
        finding = look()
    except Exception as error:  # a broken installation fails in any way it likes; the list goes on
        words = " ".join(str(error).split())
        finding = Finding("missing", f"the check failed: {type(error).__name__}: {words}", "see the message")
    return Check(name, group, *finding, essential=name in _ESSENTIAL)


def exit_code(checks: Iterable[Check]) -> int:
    """Exit status: 0, or 2 where something essential is missing."""
    return 2 if any(check.essential and check.status == "missing" for check in checks) else 0


def to_dict(checks: Iterable[Check]) -> dict[str, Any]:
    """Return the list as one JSON object: `{"ok": whether nothing essential is missing, "checks": [...]}`."""
    checks = list(checks)
    return {"ok": exit_code(checks) == 0, "checks": [asdict(check) for check in checks]}


def render(checks: Iterable[Check], width: int = 100) -> str:
    """Return the list as text, `width` columns wide where words allow, a remedy below each thing that needs one."""
    checks = list(checks)
    lines: list[str] = []
    for group, members in groupby(checks, key=lambda check: check.group):
        lines += ["", group]
        for check in members:
            lines += _entry(check, width)
    labels = [_label(check) for check in checks]
    broken = [check.name for check, label in zip(checks, labels, strict=True) if label == "missing"]
    end = f"broken: {', '.join(broken)}" if broken else "nothing essential is missing"
    optional = f"{labels.count('optional')} optional parts not here"
    lines += ["", f"{labels.count('ok')} ok, {labels.count('warning')} warnings, {optional}; {end}"]
    return "\n".join(lines[1:])


def _label(check: Check) -> str:
    """Word for a status; most of what a machine lacks is optional."""
    return "optional" if check.status == "missing" and not check.essential else check.status


def _entry(check: Check, width: int) -> list[str]:
    head = f"  {_label(check):<8} {check.name:<{_NAME_WIDTH - 4}} "
    indent = " " * len(head)
    lines = wrapped(check.detail, head, width=width)
    return [*lines, *(wrapped(check.remedy, f"{indent}-> ", width=width) if check.remedy else ())]
