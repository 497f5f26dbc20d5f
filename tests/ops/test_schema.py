# SPDX-License-Identifier: MIT
"""Every operator of the library is complete: a CPU kernel, a CUDA kernel, shapes for tracing, no alias by surprise."""

import re
from pathlib import Path

import pytest
import torch

from dnnsuite import ops

assert ops  # opens the library
SOURCE = Path(__file__).parents[2] / "cpp/fused"
IN_PYTHON = {  # of which some are there if something has imported their modules
    *("draw", "triton_convolution", "triton_filter_gradient", "low_rank_gradient", "low_rank_update")
}
NAMES = sorted(
    {name.split("::")[1] for name in torch._C._dispatch_get_all_op_names() if name.startswith("dnnsuite::")} - IN_PYTHON
)
CPU_ONLY = {
    "activate",
    "convolution",
    "gemm",
    "glu",
    "low_rank",
    "patches",
    "prelu",
    "random",
    "rearrange",
    "resample",
    "scale",
    "softmax",
    "window_convolution",
}  # on CUDA torch's own operators are called
COMPOSED_ON_CUDA = {"pool", "recurrence"}
OPERATORS = [name for name in NAMES if name != "instruction_set"]


def test_schema_lists_all():
    text = (SOURCE / "schema.cpp").read_text(encoding="utf-8")
    assert sorted(re.findall(r'"(\w+)\(', text)) == NAMES


@pytest.mark.parametrize("name", OPERATORS)
def test_has_its_kernels(name):
    registered = torch._C._dispatch_has_kernel_for_dispatch_key
    assert registered(f"dnnsuite::{name}", "CPU")
    if name != "optimizer_plan":  # addresses, which only real tensors have
        assert registered(f"dnnsuite::{name}", "Meta")


def test_both_devices_implement_the_same_families():
    """One glue (`*_operators.hpp`) registers a family's operators; each device has a source that uses it."""
    families = {path.name.removesuffix("_operators.hpp") for path in SOURCE.glob("*_operators.hpp")}
    expected = {"cpu": families | CPU_ONLY, "cuda": families - COMPOSED_ON_CUDA}
    for folder, key in (("cpu", "CPU"), ("cuda", "CUDA")):
        using = {
            path.stem
            for path in SOURCE.glob(f"{folder}/*.cpp")
            if f"STABLE_TORCH_LIBRARY_IMPL(dnnsuite, {key}, m)" in path.read_text(encoding="utf-8")
        }
        assert using == expected[folder]
    glue = [*SOURCE.glob("*_operators.hpp"), *(path for path in SOURCE.glob("cpu/*.cpp") if path.stem != "isa")]
    text = "".join(path.read_text(encoding="utf-8") for path in glue)
    assert sorted(set(re.findall(r'm\.impl\("(\w+)"', text))) == OPERATORS


@pytest.mark.parametrize("name", OPERATORS)
def test_writes_only_where_its_name_says(name):
    schema = getattr(torch.ops.dnnsuite, name).default._schema
    assert schema.is_mutable == name.endswith("_")
    if schema.is_mutable:
        assert not schema.returns
        written = [argument.name for argument in schema.arguments if argument.alias_info is not None]
        assert "grads" not in written
        assert written[0] in ("params", "out", "written", "h", "past")


def test_every_cuda_kernel_has_a_test_on_the_host():
    started = set(re.findall(r"cudaError_t (\w+)\(", (SOURCE / "kernels/kernels.hpp").read_text(encoding="utf-8")))
    tests = Path(__file__).parents[1] / "cpp/fused/kernels"
    text = "".join(path.read_text(encoding="utf-8") for path in tests.glob("*_test.cpp"))
    assert len(started) > 20
    assert not [name for name in started if not re.search(rf"(?<!generic::)\b{name}\b", text)]
