# SPDX-License-Identifier: MIT
"""Metric names that a chip refuses, and the nearest that it has."""

import pytest

from cupti_plans import needs_cupti
from dnnsuite.errors import InvalidArgument
from dnnsuite.profiler.counters.validation import suggestions, validate


@needs_cupti
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sm__cycles_activ.avg", "sm__cycles_active.avg"),
        ("sm__cycles_active", "sm__cycles_active.avg"),
        ("sm__cycles_active.averag", "sm__cycles_active.avg"),
        # Older chips' names, of which this one has others for the same role.
        (
            "sm__inst_executed_pipe_fp16.avg.pct_of_peak_sustained_elapsed",
            "sm__inst_executed_pipe_fma_type_fp16.avg.pct_of_peak_sustained_elapsed",
        ),
        ("dram__bytes_op_read.sum", "dram__bytes_read.sum"),
    ],
)
def test_a_bad_name_is_refused_with_the_nearest_that_can_be_collected(name, expected):
    with pytest.raises(InvalidArgument, match="GH100") as caught:
        validate(["sm__cycles_active.avg", name], "GH100")
    assert repr(name) in str(caught.value)
    near = suggestions(name, "GH100")
    assert near[0] == expected
    assert expected in str(caught.value)
    validate(near, "GH100")


@needs_cupti
def test_every_bad_name_is_named_at_once():
    with pytest.raises(InvalidArgument) as caught:
        validate(["a__b.sum", "sm__cycles_active.avg", "zzzz"], "GH100")
    assert "'a__b.sum'" in str(caught.value)
    assert "'zzzz'" in str(caught.value)
    assert "'sm__cycles_active.avg'" not in str(caught.value)
