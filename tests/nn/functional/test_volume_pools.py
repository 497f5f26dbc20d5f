# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite.nn import functional

B, N, C = 2, 3, 15


def volumes(*sides):
    """Volumes with the channels last in memory, enough of them; every other model's with equal numbers."""
    x = torch.randn(B, N, *sides, C, dtype=torch.float64).movedim(-1, 2)
    x[1] = x[1].round()
    return x.requires_grad_()


def agree(name, x, *args, **kwargs):
    """Compare values and gradients with torch's of each model."""
    y = getattr(functional, name)(x, *args, **kwargs)
    plain = getattr(torch.nn.functional, name)
    truth = torch.stack([plain(own.contiguous(), *args, **kwargs) for own in x])
    factors = torch.randn_like(truth)
    found, expected = ((z, *torch.autograd.grad(z, x, factors)) for z in (y, truth))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    return y


@pytest.mark.parametrize(
    "sizes",
    [
        {"kernel_size": 2},
        {"kernel_size": (1, 2, 3), "stride": (1, 2, 2), "padding": (0, 1, 1)},
        {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
        {"kernel_size": (3, 1, 1), "stride": 1},
    ],
)
@pytest.mark.parametrize("name", ["max_pool3d", "avg_pool3d"])
def test_planes_then_depth(name, sizes):
    y = agree(name, volumes(7, 8, 9), **sizes)
    assert y.movedim(2, -1).is_contiguous()


@pytest.mark.parametrize("options", [{"count_include_pad": False}, {"divisor_override": 5}, {"ceil_mode": True}])
def test_an_average_divides_by_what_torchs_does(options):
    agree("avg_pool3d", volumes(7, 8, 9), 3, 2, 1, **options)


def test_a_maximum_with_dilation():
    agree("max_pool3d", volumes(7, 8, 9), 3, 2, 1, dilation=(2, 1, 2))


@pytest.mark.parametrize("size", [1, (1, 1, 1), (2, 4, 3), (None, 1, 3), (3, 5, 2)])
@pytest.mark.parametrize("name", ["adaptive_avg_pool3d", "adaptive_max_pool3d"])
def test_adaptive_pools(name, size):
    agree(name, volumes(6, 8, 9), size)


def test_nan_is_the_largest():
    x = volumes(6, 8, 9).detach()
    x[0, 0, 3, 1, 2, 3] = float("nan")
    y = functional.max_pool3d(x, 2)
    assert torch.equal(y.isnan(), torch.stack([torch.nn.functional.max_pool3d(own, 2) for own in x]).isnan())


def test_indices_are_torchs():
    x = volumes(6, 8, 9)
    y, indices = functional.max_pool3d(x, 2, return_indices=True)
    truth, wanted = torch.nn.functional.max_pool3d(x[1], 2, return_indices=True)
    assert torch.equal(y[1], truth)
    assert torch.equal(indices[1], wanted)


@pytest.mark.parametrize(("samples", "channels", "ours"), [(2, 32, False), (2, 3, True), (16, 32, True)])
def test_maxima_of_few_numbers_are_torchs(samples, channels, ours):
    x = torch.randn(2, samples, 16, 16, 16, channels).movedim(-1, 2)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        y = functional.max_pool3d(x, 2)
    assert torch.equal(y, torch.stack([torch.nn.functional.max_pool3d(own, 2) for own in x]))
    assert y.movedim(2, -1).is_contiguous()
    assert ("aten::max_pool3d_with_indices" not in {event.key for event in profile.key_averages()}) == ours


def test_errors_are_torchs():
    with pytest.raises(RuntimeError, match="pad should be"):
        functional.max_pool3d(volumes(6, 8, 9), 2, 1, 3)
    with pytest.raises(RuntimeError, match="stride"):
        functional.avg_pool3d(volumes(6, 8, 9), 2, 0)
