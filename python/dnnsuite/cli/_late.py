# SPDX-License-Identifier: MIT
"""Modules that commands import when something of them is first used: help and refusals come at once, without them."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = [
    "advisor", "cards", "catalogue", "comparison", "convergence", "counters", "figure", "hfta_monitor", "hfta_tables",
    "ladders", "outputs", "pin", "pin_report", "plots", "reports", "results", "roles_of", "roofs", "sizes", "suites",
    "targets", "throughput_request", "until_target", "varying", "workflows",
]  # fmt: skip


class _Late(ModuleType):
    """A module by its full name; its names are looked up each time, so that one that is replaced counts."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


if TYPE_CHECKING:
    from matplotlib import figure

    from .. import advisor, pin, plots, results, suites
    from .. import report as reports
    from .. import workflow as workflows
    from ..data import catalogue
    from ..jobs import cards
    from ..pin import report as pin_report
    from ..profiler import counters
    from ..profiler import roofline as roofs
    from ..profiler.counters import roles as roles_of
    from ..profiling import sizes, throughput_request
    from ..report import targets
    from ..results import comparison, hfta_tables
    from ..results import monitor as hfta_monitor
    from ..training import array as varying
    from ..training import ladder as ladders
    from ..training import record as until_target
    from ..workflow import convergence, outputs
else:
    figure = _Late("matplotlib.figure")
    _HOMES = (
        "advisor pin plots results suites report=reports workflow=workflows data.catalogue jobs.cards "
        "pin.report=pin_report profiler.counters profiler.roofline=roofs profiler.counters.roles=roles_of "
        "profiling.sizes profiling.throughput_request report.targets results.comparison results.monitor=hfta_monitor "
        "results.hfta_tables training.ladder=ladders training.record=until_target training.array=varying "
        "workflow.convergence workflow.outputs"
    )
    for _home in _HOMES.split():
        _module, _, _name = _home.partition("=")
        globals()[_name or _module.rpartition(".")[2]] = _Late(f"dnnsuite.{_module}")
