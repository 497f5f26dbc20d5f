# SPDX-License-Identifier: MIT
import pytest
import torch
from torch.nn import functional as F

from dnnsuite.errors import InvalidArgument
from dnnsuite.nn import functional


@pytest.mark.parametrize("name", ["softmax", "softmin", "log_softmax", "glu", "normalize"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_each_dimension(name, dim):
    x = torch.randn(3, 2, 6)
    got = getattr(functional, name)(x, dim=dim)
    for model in range(3):
        torch.testing.assert_close(got[model], getattr(F, name)(x[model], dim=dim))


@pytest.mark.parametrize("name", ["softmax", "softmin", "log_softmax", "glu"])
@pytest.mark.parametrize("channels", [4, 34])
@pytest.mark.parametrize("dim", [1, -1])
def test_channels_stay_last_in_memory(name, channels, dim):
    x = torch.randn(3, 2, 6, 8, channels, dtype=torch.float64).movedim(-1, 2).requires_grad_()
    y = getattr(functional, name)(x, dim=dim)
    truth = torch.stack([getattr(F, name)(one, dim=dim) for one in x.unbind(0)])
    torch.testing.assert_close(y, truth)
    assert channels < 16 or y.movedim(2, -1).is_contiguous()
    grad = torch.randn_like(truth)
    torch.testing.assert_close(*(torch.autograd.grad(t, x, grad)[0] for t in (y, truth)))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("last", [True, False])
def test_of_few_numbers_is_one_operator(name, last):
    x = torch.randn(2, 3, 8, 8, 6)
    x = (x.movedim(-1, 2) if last else x).requires_grad_()
    dim = 1 if last else -1
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        y = getattr(functional, name)(x, dim=dim)
        y.sum().backward()
    truth = torch.stack([getattr(F, name)(one, dim=dim) for one in x.detach()])
    torch.testing.assert_close(y, truth)
    assert y.stride() == x.stride()
    names = {event.key for event in profile.key_averages()}
    assert {"dnnsuite::short_softmax", "dnnsuite::short_softmax_backward"} <= names
    assert not names & {"aten::_softmax", "aten::_log_softmax"}


def test_of_few_numbers_where_torch_serves():
    x = torch.randn(2, 300, 6)
    assert functional.softmax(x, -1, dtype=torch.float64).dtype == torch.float64
    assert functional.softmax(x.bfloat16(), -1).dtype == torch.bfloat16
    assert torch.equal(functional.softmax(x[..., ::2], -1), torch.softmax(x[..., ::2], -1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_glu_of_many_numbers_is_one_operator_where_it_has_the_dtype(dtype):
    x = torch.randn(2, 30, 200, dtype=dtype)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        y = functional.glu(x)
    torch.testing.assert_close(y, F.glu(x))
    names = {event.key for event in profile.key_averages()}
    assert ("aten::glu" in names) == (dtype == torch.bfloat16)


def test_channels_that_lie_last_are_compiled():
    x = torch.randn(2, 3, 6, 34).movedim(-1, 2)
    step = torch.compile(lambda t: functional.softmax(t, dim=1), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(step(x), functional.softmax(x, dim=1))


@pytest.mark.filterwarnings("ignore:Implicit dimension")
@pytest.mark.parametrize("shape", [(5,), (4, 5), (3, 4, 5), (2, 3, 4, 5)])
def test_the_dimension_that_torch_takes_unasked(shape):
    x = torch.randn(2, *shape)
    torch.testing.assert_close(functional.softmax(x)[1], F.softmax(x[1]))


def test_gumbel_softmax():
    y = functional.gumbel_softmax(torch.randn(2, 3, 4), hard=True, dim=0)
    assert torch.equal(y.sum(1), torch.ones(2, 4))


def test_prelu_refuses_another_count():
    with pytest.raises(InvalidArgument, match=r"\[2, 5\]"):
        functional.prelu(torch.randn(2, 3, 4), torch.randn(2, 5))


@pytest.mark.parametrize("weights", [1, 4])
@pytest.mark.parametrize("how", ["last", "contiguous", "strided", "shared"])
@pytest.mark.parametrize("B", [1, 3])
def test_prelu_in_any_layout(weights, how, B):
    x = torch.randn(B, 2, 5, 6, 4, dtype=torch.float64).movedim(-1, 2)
    x = torch.randn(B, 2, 4, 5, 12, dtype=torch.float64)[..., ::2] if how == "strided" else x
    x = x.contiguous() if how == "contiguous" else x[:1].expand_as(x) if how == "shared" else x
    own = x.requires_grad_(), torch.randn(B, weights, dtype=torch.float64, requires_grad=True)
    y = functional.prelu(*own)
    truth = torch.stack([F.prelu(*one) for one in zip(*own, strict=True)])
    torch.testing.assert_close(y, truth)
    grad = torch.randn_like(truth)
    torch.testing.assert_close(*(torch.autograd.grad(t, own, grad) for t in (y, truth)))
    if how == "last":
        assert y.movedim(2, -1).is_contiguous()


def test_prelu_of_nothing():
    assert functional.prelu(torch.randn(2, 0, 4), torch.randn(2, 1)).shape == (2, 0, 4)
    assert functional.prelu(torch.randn(0, 3, 4), torch.randn(0, 1)).shape == (0, 3, 4)
