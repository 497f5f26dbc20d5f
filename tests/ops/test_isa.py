# SPDX-License-Identifier: MIT
"""Instruction sets: chosen on request, and of one opinion."""

import os
import subprocess
import sys

import pytest
import torch

import operator_cases
from dnnsuite import ops

BEST = ops.instruction_set()
LEVELS = ["neon"] if BEST == "neon" else ["generic", "avx2", "avx512"]


def chosen(asked):
    """What a process takes that asks for this set."""
    program = "from dnnsuite import ops; print(ops.instruction_set())"
    environment = os.environ | {"DNNSUITE_ISA": asked}
    out = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return out.stdout.strip()


@pytest.mark.skipif("DNNSUITE_ISA" in os.environ, reason="the instruction set is given")
@pytest.mark.parametrize("asked", ["nonsense", *LEVELS[LEVELS.index(BEST) + 1 :]])
def test_what_is_unknown_or_missing_is_the_best_there_is(asked):
    assert chosen(asked) == BEST


def results_with(isa, path):
    """Results of the whole table, in a process of its own: the library chooses its instructions as it is loaded."""
    environment = os.environ | {"DNNSUITE_ISA": isa, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, operator_cases.__file__, str(path)], check=True, env=environment)
    return torch.load(path)


@pytest.mark.skipif(LEVELS[0] == BEST, reason="this machine has one instruction set")
def test_instruction_sets_agree(tmp_path):
    """The same masks; results within rounding (a fused multiply-add rounds once where generic code rounds twice)."""
    torch.set_num_threads(1)  # as the processes
    # Beside the generic one a library has those that it was built for: the widest alone, unless DNNSUITE_ISA=all.
    levels = [isa for isa in LEVELS[: LEVELS.index(BEST)] if chosen(isa) == isa]
    assert levels[0] == "generic"
    base, *others = (*(results_with(isa, tmp_path / isa) for isa in levels), operator_cases.results())
    for isa, other in zip([*levels, BEST], [base, *others], strict=True):
        assert other.pop("isa") == isa
    for isa, other in zip([*levels, BEST][1:], others, strict=True):
        for name, values in other.items():
            for part, value in values.items():
                want = base[name][part]
                if name.startswith("dropout"):
                    assert torch.equal(value, want), f"{name} {part} with {isa}"
                torch.testing.assert_close(value, want, rtol=1e-4, atol=1e-5, msg=f"{name} {part} with {isa}")
