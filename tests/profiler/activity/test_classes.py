# SPDX-License-Identifier: MIT
"""Classes of kernels by names as they stand in public traces, from Kepler to Blackwell and on AMD's GPUs.

`kernel_names.tsv` has a class and a name a line. Names are those of cuDNN 5 to 9, cuBLAS, CUTLASS, NCCL, torch, Triton,
TensorFlow, vLLM, FlashInfer, apex, MIOpen, rocBLAS and Composable Kernel, cut where tools cut them; the class is what
the kernel computes, whatever its name sounds like.
"""

from pathlib import Path

import pandas as pd
import pytest

from dnnsuite.profiler.activity import CLASSES, classify, classify_names

TABLE = Path(__file__).parents[2] / "fixtures/kernel_names.tsv"
NAMES = dict(line.split("\t")[::-1] for line in TABLE.read_text(encoding="utf-8").splitlines())


def test_each_name_of_the_table_has_its_class():
    wrong = [f"{classify(name)}, not {kind}: {name}" for name, kind in NAMES.items() if classify(name) != kind]
    assert not wrong, "\n".join(wrong)
    assert len(NAMES) >= 300


def test_the_table_has_every_class_that_a_kernel_can_have():
    of_operators_alone = {"compiled", "custom", "views", "frame"}
    assert {*NAMES.values()} == {*CLASSES} - of_operators_alone


@pytest.mark.parametrize("name", ["void my_library::frobnicate<float>(float*)", "saxpy(int, float*)", "triton_", ""])
def test_a_name_that_no_rule_knows_is_other(name):
    assert classify(name) == "other"


def test_types_among_a_kernels_arguments_say_nothing_of_what_it_does():
    assert classify("void my::thing<cutlass::bfloat16_t, c10::Half>(cutlass::bfloat16_t*)") == "other"
    assert classify("void scal_kernel<float, float, 1>(cublasTransposeParams<float>, float*)") == "elementwise"


def test_a_column_with_missing_names():
    found = classify_names(pd.Series(["ampere_sgemm_64x64_nn", None, "ampere_sgemm_64x64_nn", "x"]))
    assert list(found) == ["gemm", "other", "gemm", "other"]
    assert list(classify_names(pd.Series([], dtype=object))) == []
