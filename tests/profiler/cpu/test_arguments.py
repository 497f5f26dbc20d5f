# SPDX-License-Identifier: MIT
import types

import pytest

from dnnsuite.profiler.cpu._classes import RecordedArguments, argument_count

RECORDED = ("shapes", "concrete_inputs", "structured_input_shapes", "structured_input_strides", "dtypes")
SHAPES = [[9, 9], [7], [2, 3], [3, 4], []]


@pytest.mark.parametrize(
    ("name", "overload", "count"),
    [
        ("aten::mm", "", 2),
        ("aten::mm", "out", 3),
        ("aten::select", "int", 3),
        ("aten::nosuch", "", None),
        ("x", "", None),
    ],
)
def test_the_count_is_that_of_the_schema(name, overload, count):
    assert argument_count(name, overload) == count


def event(name, shapes):
    return types.SimpleNamespace(name=lambda: name, overload_name=str, **dict.fromkeys(RECORDED, lambda: shapes))


@pytest.mark.parametrize("below", [0, 1, 2])
def test_what_lies_below_on_an_interpreters_stack_is_no_argument(below):
    found = RecordedArguments.of(event("aten::mm", [*[[9, 9], [7]][:below], [2, 3], [3, 4]]))
    assert found.shapes == [[2, 3], [3, 4]]
    assert found.values == [[2, 3], [3, 4]]


def test_arguments_of_what_is_no_operator_stay():
    assert RecordedArguments.of(event("Optimizer.step#Adam.step", SHAPES)).shapes == SHAPES
