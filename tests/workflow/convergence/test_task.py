# SPDX-License-Identifier: MIT
import json

import tiny_workloads  # noqa: F401  (registers blobs)
from dnnsuite._runs.spec import WorkerSpec
from dnnsuite._runs.worker import Siblings
from dnnsuite.jobs import JobConfig
from dnnsuite.workflow.convergence.plan import TRAJECTORY_FILE, train


def test_losses_and_weights_are_left_in_a_file(tmp_path):
    config = JobConfig(B=2, batch_size=4, threads=1, hyper={"lr": [0.1, 0.2]}).to_dict()
    details = {"way": "hfta", "iterations": 3, "iters_per_epoch": 2}
    result = train(WorkerSpec("", str(tmp_path), "blobs", config, details), Siblings(None))
    assert result["provenance"]["optimizer"] == "SGD"
    kept = json.loads((tmp_path / TRAJECTORY_FILE).read_text())
    assert [len(row) for row in kept["losses"]] == [2, 2, 2]
    assert len(kept["start"]) == len(kept["end"]) == 2
