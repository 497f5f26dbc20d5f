# SPDX-License-Identifier: MIT
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dnnsuite import ops
from dnnsuite.errors import InvalidArgument

NORMS = [1.0, 2.0, 3.5, float("inf")]


def gradients(B, device="cpu", dtype=torch.float32):
    return [torch.randn(B, *shape).to(device, dtype) for shape in ((7, 5), (40_003,), (), (0,))]


def torchs(grads, index, norm_type):
    return torch.nn.utils.get_total_norm([g[index].double() for g in grads if g.numel()], norm_type)


@pytest.mark.parametrize("norm_type", NORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_is_torchs_norm_of_each_model(norm_type, dtype, device):
    grads = gradients(3, device, dtype)
    norms = ops.gradient_norms(grads, norm_type)
    assert norms.dtype == torch.float64
    expected = torch.stack([torchs(grads, index, norm_type) for index in range(3)])
    torch.testing.assert_close(norms, expected, rtol=1e-9, atol=0)


@given(st.integers(1, 5), st.integers(1, 60_000), st.sampled_from(NORMS))
@settings(max_examples=15)
def test_depends_on_neither_the_others_nor_the_threads(B, size, norm_type):
    grads = [torch.randn(B, size), torch.randn(B, 3)]
    torch.set_num_threads(2)
    together = ops.gradient_norms(grads, norm_type)
    torch.set_num_threads(1)
    for index in range(B):
        alone = ops.gradient_norms([g[index : index + 1] for g in grads], norm_type)
        assert torch.equal(alone[0], together[index])


@pytest.mark.parametrize("norm_type", NORMS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_is_finite_if_and_only_if_every_gradient_is(norm_type, bad, device):
    grads = gradients(3, device)
    grads[1][2] = torch.finfo(torch.float32).max  # its square overflows in float
    assert torch.isfinite(ops.gradient_norms(grads, norm_type)[[0, 1]]).all()
    if norm_type != 3.5:  # a large power overflows in double, too
        assert torch.isfinite(ops.gradient_norms(grads, norm_type)[2])
    grads[1][1, 20_000] = bad
    assert torch.isfinite(ops.gradient_norms(grads, norm_type)).tolist()[:2] == [True, False]


def test_scales_and_clamps_each_model(device):
    grads = gradients(3, device)
    grads[0][0] = torch.nan
    before = [g.clone() for g in grads]
    factor = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64, device=device)
    ops.scale_gradients_(grads, factor)
    for now, old in zip(grads, before, strict=True):
        expected = old * factor.view(-1, *[1] * (old.dim() - 1)).to(old.dtype)
        torch.testing.assert_close(now, expected, rtol=0, atol=0, equal_nan=True)
    ops.clamp_gradients_(grads, torch.tensor([1.0, 0.25, 0.5], dtype=torch.float64, device=device))
    assert grads[0][0].isnan().all()
    for grad in grads:
        assert all(grad[index].abs().le(limit).all() for index, limit in ((1, 0.25), (2, 0.5)))


def test_dtypes_may_differ():
    grads = [torch.full((2, 4), 3.0), torch.full((2, 4), 4.0, dtype=torch.bfloat16)]
    assert ops.gradient_norms(grads).tolist() == [10.0, 10.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], 2.0), "grads is empty"),
        (([torch.ones(2, 3)], 0.0), "norm_type must be positive or infinite, not 0"),
        (([torch.ones(2, 3), torch.ones(3, 3)], 2.0), r"grads\[1\] has shape \[3, 3\], but grads\[0\] has 2 models"),
        (([torch.ones(2, 3, dtype=torch.long)], 2.0), "must be float32 or float64"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises((RuntimeError, InvalidArgument), match=message):
        ops.gradient_norms(*arguments)
