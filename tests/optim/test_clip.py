# SPDX-License-Identifier: MIT
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dnnsuite import optim
from dnnsuite.errors import InvalidArgument


def parameters(B, scale=1.0, dtype=torch.float32):
    params = [torch.nn.Parameter(torch.zeros(B, *shape, dtype=dtype)) for shape in ((3, 5), (7,), ())]
    for p in params:
        p.grad = scale * torch.randn(B, *p.shape[1:]).to(dtype)
    return params


def alone(params, index):
    own = [torch.nn.Parameter(p[index].detach().clone()) for p in params]
    for p, source in zip(own, params, strict=True):
        p.grad = source.grad[index].clone()
    return own


@given(
    st.lists(st.floats(0.01, 10), min_size=1, max_size=4), st.sampled_from([1.0, 2.0, 3.0, float("inf")]), st.booleans()
)
@settings(max_examples=12)
def test_is_torchs_clip_of_each_model(limits, norm_type, shared):
    params = parameters(len(limits))
    others = [alone(params, index) for index in range(len(limits))]
    limit = limits[0] if shared else limits
    norms = optim.clip_grad_norm_(params, limit, norm_type)
    for index, own in enumerate(others):
        mine = limits[0] if shared else limits[index]
        expected = torch.nn.utils.clip_grad_norm_(own, mine, norm_type)
        torch.testing.assert_close(norms[index], expected, rtol=1e-5, atol=0)
        for a, b in zip(params, own, strict=True):
            torch.testing.assert_close(a.grad[index], b.grad, rtol=1e-5, atol=1e-7)


def test_values_are_torchs_of_each_model():
    params = parameters(2)
    others = [alone(params, index) for index in range(2)]
    optim.clip_grad_value_(params, [0.1, 1.0])
    for index, own in enumerate(others):
        torch.nn.utils.clip_grad_value_(own, [0.1, 1.0][index])
        for a, b in zip(params, own, strict=True):
            assert torch.equal(a.grad[index], b.grad)


def test_a_model_within_its_norm_and_one_with_nan_touch_no_other():
    params = parameters(3)
    params[0].grad[1] = torch.nan
    before = [p.grad.clone() for p in params]
    norms = optim.clip_grad_norm_(params, [1e9, 1.0, 1e-3])
    assert norms.isnan().tolist() == [False, True, False]
    for p, old in zip(params, before, strict=True):
        assert torch.equal(p.grad[0], old[0])
    assert sum(p.grad[2].square().sum() for p in params).sqrt() <= 1e-3
    with pytest.raises(InvalidArgument, match=r"models \[1\] have a norm that is not finite"):
        optim.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)


def test_orders_in_memory_and_dtypes():
    params = parameters(2) + parameters(2, dtype=torch.bfloat16)
    params[0].grad = torch.randn(2, 5, 3).transpose(1, 2)
    exact = [p.grad.double() for p in params]
    total = optim.get_total_norm([p.grad for p in params])
    expected = torch.stack([sum(g[i].square().sum() for g in exact).sqrt() for i in range(2)])
    torch.testing.assert_close(total.double(), expected)
    optim.clip_grad_norm_(params, 1.0)
    torch.testing.assert_close(params[0].grad.double(), exact[0] / expected.view(2, 1, 1), rtol=1e-4, atol=1e-6)
    one = params[1]
    assert optim.clip_grad_norm_(one, 0.5).shape == (2,)


def test_refuses():
    params = parameters(2)
    with pytest.raises(InvalidArgument, match="max_norm has shape"):
        optim.clip_grad_norm_(params, [1.0, 2.0, 3.0])
    with pytest.raises(InvalidArgument, match="max_norm of model 1"):
        optim.clip_grad_norm_(params, [1.0, -2.0])
    with pytest.raises(InvalidArgument, match="norm_type is 0"):
        optim.clip_grad_norm_(params, 1.0, 0)
    with pytest.raises(InvalidArgument, match="nothing to clip"):
        optim.clip_grad_norm_([torch.nn.Parameter(torch.ones(2))], 1.0)
    with pytest.raises(InvalidArgument, match="same B"):
        optim.clip_grad_norm_([*params, *parameters(3)], 1.0)
    with pytest.raises(InvalidArgument, match="no gradient"):
        optim.get_total_norm([])
