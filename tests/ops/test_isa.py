# SPDX-License-Identifier: MIT
"""Instruction sets: chosen on request, and of one opinion."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dnnsuite import ops


@pytest.mark.parametrize("asked", ["generic", "nonsense", "avx512"])
def test_instruction_set_on_request(asked):
    program = "from dnnsuite import ops; print(ops.instruction_set())"
    environment = os.environ | {"DNNSUITE_ISA": asked}
    out = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    expected = ops.instruction_set() if asked != "generic" else "generic"
    if asked == "avx512" or "DNNSUITE_ISA" not in os.environ:
        assert out.stdout.strip() == expected


def results_with(isa, path):
    script = Path(__file__).parent / "operator_cases.py"
    environment = os.environ | {"DNNSUITE_ISA": isa, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, str(script), str(path)], check=True, env=environment)
    return torch.load(path)


@pytest.mark.skipif(ops.instruction_set() == "generic", reason="this machine has one instruction set")
def test_instruction_sets_agree(tmp_path):
    """The same masks; results within rounding (a fused multiply-add rounds once where generic code rounds twice)."""
    levels = ["generic", "avx2", "avx512"]
    levels = levels[: levels.index(ops.instruction_set()) + 1]
    base, *others = (results_with(isa, tmp_path / isa) for isa in levels)
    assert base["isa"] == "generic"
    for isa, other in zip(levels[1:], others, strict=True):
        assert other.pop("isa") == isa
        for name, values in other.items():
            for part, value in values.items():
                want = base[name][part]
                if name.startswith("dropout"):
                    assert torch.equal(value, want), f"{name} {part} with {isa}"
                torch.testing.assert_close(value, want, rtol=1e-4, atol=1e-5, msg=f"{name} {part} with {isa}")
