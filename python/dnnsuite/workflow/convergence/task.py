# SPDX-License-Identifier: MIT
"""Task of a convergence worker: train the models one way, and leave losses and weights."""

from __future__ import annotations

from typing import Any

from ..._files import sealed, write_text
from ..._runs.spec import WorkerSpec
from ..._runs.worker import Siblings

TRAJECTORY_FILE = "trajectory.json"


def train(spec: WorkerSpec, siblings: Siblings) -> dict[str, Any]:
    """Train as `spec.details["way"]` says, and write `trajectory.json`."""
    from ...jobs import JobConfig, trajectories

    asked = spec.details
    found = trajectories.train(
        spec.job, JobConfig.from_dict(spec.config), asked["way"], asked["iterations"],
        asked["iters_per_epoch"], siblings.wait,
    )  # fmt: skip
    kept = {"losses": found.losses, "start": found.start, "end": found.end, "accuracy": found.accuracy}
    write_text(spec.folder / TRAJECTORY_FILE, sealed(kept, 1))
    return {"provenance": found.provenance}
