# SPDX-License-Identifier: MIT

import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.profiling.throughput_request import TBD_SIZES, Request, parse_batch_sizes


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"job": "toy_regg"}, "no job 'toy_regg' .*did you mean 'toy_reg'"),
        ({"batch_sizes": (2, 2)}, "--batch-sizes: 2,2 names one twice"),
        ({"preset": "tiny"}, "--preset 'tiny'; accepted: quick, full"),
        ({"stop_iteration": 0}, "--stop-iteration 0: must be at least 1"),
        ({"start_iteration": 5}, "--start-iteration goes with --stop-iteration"),
        ({"stop_iteration": 5, "start_iteration": 5}, "--start-iteration 5: from 0 to 4"),
        ({"repeats": -1}, "--repeats -1: must be at least 1"),
        ({"repeats": 0}, "--repeats 0: must be at least 1"),
        ({"budget_s": 0.0}, "--budget 0.0: must be a positive number"),
        ({"threads": 0}, "--threads 0: must be at least 1"),
        ({"timeout_s": 0.0}, "--timeout 0.0: must be a positive number"),
        ({"budget_s": -1.0}, "--budget -1"),
        ({"target": 2.0}, "--target 2.0: a part of the rate"),
        ({"B": -1}, "B must be 0 .one plain model. or more"),
        ({"precision": "fp8"}, "precision 'fp8' is not one of"),
        ({"options": {"wide": 2}}, "no option 'wide'"),
    ],
)
def test_bad_requests_are_one_sentence(changes: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        Request(**{"job": "toy_reg", "batch_sizes": (2,), **changes}).checked()


def test_defaults_are_the_originals() -> None:
    request = Request("toy_reg", stop_iteration=1000).checked()
    assert request.batch_sizes == TBD_SIZES == (1, 2, 4, 8, 16, 32, 64, 96, 128)
    assert (request.start_iteration, request.repeats) == (100, 1)
    assert Request("toy_reg", stop_iteration=6).checked().start_iteration == 3


def test_options_are_those_of_the_job() -> None:
    request = Request("imagenet-resnet50", (2,), preset="quick").with_options(["width=2", "enable_nhwc=yes"]).checked()
    assert request.options["width"] == 2
    assert request.options["enable_nhwc"] is True
    assert request.options["image_size"] == 64
    with pytest.raises(InvalidArgument, match=r"has no option 'widht' .*did you mean 'width'"):
        Request("imagenet-resnet50").with_options(["widht=2"])
    with pytest.raises(InvalidArgument, match="'batch_size'"):
        Request("toy_reg").with_options(["batch_size=2"])


def test_numbers_with_commas() -> None:
    assert parse_batch_sizes("1,2, 4") == (1, 2, 4)
    assert parse_batch_sizes(None) == ()


@pytest.mark.parametrize("text", ["", "1,,2", "1.5", "0", "-1", "1 2"])
def test_anything_else_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(InvalidArgument, match="--batch-sizes") as caught:
        parse_batch_sizes(text)
    assert repr(text) in str(caught.value)
