# SPDX-License-Identifier: MIT
"""Benchmarks are scripts that import what lies beside them."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks/ops")]
