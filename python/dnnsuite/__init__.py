# SPDX-License-Identifier: MIT
"""Measure, see and multiply the training of deep neural networks.

Names are resolved when first used: importing the package imports neither torch nor anything else that is slow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._lazy import lazy

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

__all__ = [
    "StepRunner", "__version__", "adapt", "adapters", "advise", "coverage", "data", "errors", "fuse", "importers",
    "jobs", "models", "nn", "ops", "optim", "pin", "plots", "profiler", "report", "results", "stack", "state_bytes",
    "suites", "sweep", "timing", "training", "tuning", "unfuse", "unstack", "workflow",
]  # fmt: skip

_resolve, __dir__ = lazy(
    __name__,
    {
        "._fuse": "coverage fuse unfuse stack state_bytes unstack",
        "._step": "StepRunner",
        ".adapters": "adapt",
        ".advisor": "advise",
        ".tuning": "sweep",
    },
    __all__,
)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("dnnsuite")
    return _resolve(name)
