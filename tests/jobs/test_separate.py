# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite.jobs import _separate
from dnnsuite.jobs._separate import Tolerance, compare, masked_attention, update_error
from helpers import assert_near

NAN = float("nan")


class Silent:
    """A stream that is not to be asked."""

    def drop(self, x, p):
        raise AssertionError("nothing is to be dropped")


def test_attention_written_out_is_torchs_without_dropout():
    original = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (torch.randn(2, 3, 5, 4) for _ in range(3))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    module = torch.nn.MultiheadAttention(4, 2, batch_first=True)
    x = torch.randn(2, 5, 4)
    plain, _ = module(x, x, x, need_weights=False)
    with masked_attention():
        _separate._attention_stream.append(Silent())
        assert_near(torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True), expected)
        _separate._attention_stream.append(Silent())
        assert_near(module(x, x, x, need_weights=False)[0], plain)
    assert torch.nn.functional.scaled_dot_product_attention is original


TOLERANCE = Tolerance(loss=0.05, update=0.01)


def test_compare_takes_the_worst_of_all_models_and_steps():
    record = compare([[1.0, 2.0], [1.0, 2.2]], [[1.0, 2.0], [1.0, 2.0]], [0.0, 0.0], TOLERANCE)
    assert not record["passed"]
    assert abs(record["max_relative_error"] - 0.1) < 1e-12
    assert compare([[1.0]], [[1.04]], [0.005], TOLERANCE)["passed"]
    assert not compare([[1.0]], [[1.0]], [0.02], TOLERANCE)["passed"]


@pytest.mark.parametrize("row", [[NAN, 1.0], [1.0, NAN], [NAN, NAN]])
def test_compare_never_passes_on_nan(row):
    assert not compare([[row[0]]], [[row[1]]], [0.0], TOLERANCE)["passed"]
    assert not compare([[1.0]], [[1.0]], [NAN], TOLERANCE)["passed"]


def test_compare_never_passes_on_nothing():
    assert not compare([], [], [], TOLERANCE)["passed"]


def test_update_error_is_relative_to_the_way_gone():
    start, separate, fused = [torch.zeros(4)], [torch.full((4,), 2.0)], [torch.full((4,), 2.2)]
    assert abs(update_error(fused, separate, start) - 0.1) < 1e-6
    assert update_error(start, start, start) == float("inf")
