# SPDX-License-Identifier: MIT
"""Benchmarks are scripts that import what lies beside them."""

import sys
from pathlib import Path

import pytest

from dnnsuite.profiler.roofline import Contention, Peaks

ROOT = Path(__file__).parents[2]
FOLDERS = ("lib", "arrays", "ops", "gpu", "instruments", "training")
sys.path[:0] = [str(ROOT / "benchmarks" / folder) for folder in FOLDERS]


@pytest.fixture
def peaks():
    """100 FLOP/s, and 400 in bf16; 1000 bytes of a cache with 50 bytes/s, 10 from memory."""
    flops, moved = {"fp32": 100.0, "bf16": 400.0}, {"L1": 50.0, "memory": 10.0}
    return Peaks({}, 1, flops, moved, {"L1": 1000, "memory": 1 << 62}, Contention(1.0, 0.0, 1), "now")
