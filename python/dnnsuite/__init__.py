# SPDX-License-Identifier: MIT
"""Measure, see and multiply the training of deep neural networks.

Names are resolved when first used: importing the package imports neither torch nor anything else that is slow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import (
        adapters,
        data,
        errors,
        importers,
        jobs,
        models,
        nn,
        ops,
        optim,
        pin,
        plots,
        profiler,
        report,
        results,
        suites,
        timing,
        training,
        tuning,
        workflow,
    )
    from ._fuse import fuse, stack, unfuse, unstack
    from ._fuse.coverage import coverage
    from ._fuse.state import state_bytes
    from ._step import StepRunner
    from .adapters.adapt import adapt
    from .advisor import advise
    from .tuning.sweep import sweep

    __version__: str

_HOME_OF = {
    "coverage": "._fuse",
    "fuse": "._fuse",
    "unfuse": "._fuse",
    "stack": "._fuse",
    "state_bytes": "._fuse",
    "unstack": "._fuse",
    "StepRunner": "._step",
    "adapt": ".adapters",
    "advise": ".advisor",
    "sweep": ".tuning",
}
_MODULES = (
    "adapters", "data", "errors", "importers", "jobs", "models", "nn", "ops", "optim", "pin", "plots", "profiler",
    "report", "results", "suites", "timing", "training", "tuning", "workflow",
)  # fmt: skip

__all__ = [
    "StepRunner", "__version__", "adapt", "adapters", "advise", "coverage", "data", "errors", "fuse", "importers",
    "jobs", "models", "nn", "ops", "optim", "pin", "plots", "profiler", "report", "results", "stack", "state_bytes",
    "suites", "sweep", "timing", "training", "tuning", "unfuse", "unstack", "workflow",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        value = getattr(importlib.import_module(_HOME_OF[name], __name__), name)
    elif name in _MODULES:
        value = importlib.import_module(f".{name}", __name__)
    elif name == "__version__":
        from importlib.metadata import version

        value = version("dnnsuite")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
