# SPDX-License-Identifier: MIT
"""Targets tell jobs that learn from those of shuffled labels; docs/measure/jobs.md has all jobs and ways."""

import pytest
import torch
from broken_jobs import broken, shuffled


@pytest.mark.parametrize("name", ["convnext", "dcnv2"])
def test_a_job_that_learns_shuffled_labels_misses_its_target(name: str) -> None:
    """Those with the shortest training; blind answers of the others are judged in tests/jobs/test_suite2026.py."""
    found = broken(name, "shuffled", data="synthetic")
    assert found["value"] == found["value"]
    assert not found["reached"]


def test_labels_are_shuffled_together_and_inputs_stay() -> None:
    x = torch.arange(8.0)[:, None]
    there, kind, box = torch.arange(8), torch.arange(8) + 10, torch.arange(8) + 20
    seen, *labels = shuffled("detector", (x, there, kind, box))
    assert torch.equal(seen, x)
    assert not torch.equal(labels[0], there)
    assert torch.equal(labels[0] + 10, labels[1])
    assert torch.equal(labels[0] + 20, labels[2])
