# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite.nn import functional
from dnnsuite.nn.functional import pooling


@pytest.mark.parametrize("kind", ["max", "avg", "adaptive_max", "adaptive_avg"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_pools_each_sample(kind, dims):
    x = torch.randn(2, 3, 4, *[6] * dims)
    name = f"{kind}_pool{dims}d"
    y, plain = getattr(functional, name)(x, 2), getattr(torch.nn.functional, name)
    assert torch.equal(y[1], plain(x[1], 2))


def test_indices_are_those_of_a_plane():
    x = torch.randn(2, 3, 4, 6, 6)
    values, indices = functional.max_pool2d(x, 2, return_indices=True)
    assert torch.equal(x.flatten(-2).gather(-1, indices.flatten(-2)), values.flatten(-2))
    again = functional.max_pool2d_with_indices(x, 2)
    assert torch.equal(again[1], indices)
    back = functional.max_unpool2d(values, indices, 2)
    assert torch.equal(functional.max_pool2d(back.clamp(min=0), 2), values.clamp(min=0))


INDEXED = [
    ("max_pool2d", (2,), {}),
    ("max_pool2d", ((2, 3), [1, 2], (1, 0)), {"ceil_mode": True}),
    ("max_pool2d", (3, None, 1, 2), {}),
    ("max_pool1d", (3, 2, 1), {"ceil_mode": True}),
    ("max_pool1d", (2,), {"dilation": 3}),
]


@pytest.mark.parametrize(("name", "args", "kwargs"), INDEXED)
@pytest.mark.parametrize("activation", ["none", "relu"])
@pytest.mark.parametrize("shared", [False, True])
def test_indices_of_our_own_pool_are_torchs(name, args, kwargs, activation, shared, monkeypatch):
    monkeypatch.setattr(pooling, "FEW_NUMBERS", 0)
    monkeypatch.setattr(pooling, "FEW_TAKEN", 0)
    sides = (20, 19) if name.endswith("2d") else (20,)
    own = torch.randn(1 if shared else 3, 2, 5, *sides)
    own[0, 0, 0, ..., 2:9] = -torch.inf
    own[0, 0, 1, ..., 4:6] = torch.nan
    own[0, 0, 2, ..., 3:14] = -1.0  # equal ones; and zeros, after a ReLU
    x = own.expand(3, *own.shape[1:]).requires_grad_(not shared)
    y, indices = getattr(functional, name)(x, *args, **kwargs, return_indices=True, activation=activation)
    before = x.relu() if activation == "relu" else x
    plain = getattr(torch.nn.functional, name)
    truths = [plain(one, *args, **kwargs, return_indices=True) for one in before]
    truth, places = (torch.stack(held) for held in zip(*truths, strict=True))
    torch.testing.assert_close(y, truth, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(indices, places)
    if not shared:
        grad = torch.randn_like(truth)
        assert torch.equal(*(torch.autograd.grad(z, x, grad, retain_graph=True)[0] for z in (y, truth)))


def test_pools_with_indices_are_ours():
    x = torch.randn(2, 4, 20, 40, 40)
    values, indices = functional.max_pool2d_with_indices(x, 2)
    assert all(t.movedim(2, -1).is_contiguous() for t in (values, indices))
    again = functional.max_pool1d_with_indices(torch.randn(2, 4, 20, 2000), 2)
    assert all(t.movedim(2, -1).is_contiguous() for t in again)


def test_channels_stay_last_in_memory():
    x = torch.randn(3, 2, 6, 6, 4).movedim(-1, 2)
    assert functional.max_pool2d(x, 2).movedim(2, -1).is_contiguous()


SIZES = [
    ("max_pool2d", (2,), {}),
    ("max_pool2d", ((2, 3), [1, 2], (1, 0)), {"ceil_mode": True}),
    ("max_pool2d", (), {"kernel_size": 2, "stride": (2,), "dilation": 2}),
    ("max_pool2d", (3, None, 1, 2), {}),
    ("max_pool2d", ((3, 5), 1, (1, 2), (9, 4)), {"ceil_mode": True}),
    ("max_pool2d", (17, 1), {}),  # more pixels than a byte counts
    ("max_pool1d", (3, 2, 1), {"ceil_mode": True}),
    ("max_pool1d", ((3,), (2,)), {"dilation": 2}),
    ("avg_pool2d", ((2, 3), 2, (0, 1)), {"count_include_pad": False}),
    ("avg_pool2d", (3, 2, 1, True, True, -2), {}),
    ("avg_pool1d", (3, 2, 1), {"ceil_mode": True, "count_include_pad": False}),
]


@pytest.mark.parametrize(("name", "args", "kwargs"), SIZES)
@pytest.mark.parametrize("shared", [False, True])
def test_every_way_to_give_sizes(name, args, kwargs, shared, monkeypatch):
    monkeypatch.setattr(pooling, "FEW_NUMBERS", 0)
    monkeypatch.setattr(pooling, "FEW_TAKEN", 0)
    sides = (20, 19) if name.endswith("2d") else (20,)
    own = torch.randn(1 if shared else 3, 2, 5, *sides, dtype=torch.float64)
    x = own.expand(3, *own.shape[1:]).requires_grad_(not shared)
    y, plain = getattr(functional, name)(x, *args, **kwargs), getattr(torch.nn.functional, name)
    truth = torch.stack([plain(each, *args, **kwargs) for each in x])
    torch.testing.assert_close(y, truth)
    if not shared:
        grad = torch.randn_like(truth)
        got, wanted = (torch.autograd.grad(t, x, grad)[0] for t in (y, truth))
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("max_pool2d", ((2, 2, 2),)),
        ("max_pool2d", (30,)),
        ("max_pool2d", (2, 0)),
        ("max_pool2d", (2, 2, 2)),
        ("avg_pool2d", (2, 2, 0, False, True, 0)),
    ],
)
def test_torch_says_what_is_wrong(name, args, monkeypatch):
    monkeypatch.setattr(pooling, "FEW_NUMBERS", 0)
    monkeypatch.setattr(pooling, "FEW_TAKEN", 0)
    x = torch.randn(2, 3, 4, 20, 20)
    with pytest.raises((RuntimeError, ValueError)) as theirs:
        getattr(torch.nn.functional, name)(x[0], *args)
    with pytest.raises((RuntimeError, ValueError)) as ours:
        getattr(functional, name)(x, *args)
    assert str(ours.value).split("\n")[0] == str(theirs.value).split("\n")[0]


def test_channels_stay_last_in_memory_of_ours_too(monkeypatch):
    monkeypatch.setattr(pooling, "FEW_NUMBERS", 0)
    monkeypatch.setattr(pooling, "FEW_TAKEN", 0)
    x = torch.randn(3, 2, 6, 6, 4).movedim(-1, 2).requires_grad_()
    y = functional.max_pool2d(x, 2)
    assert y.movedim(2, -1).is_contiguous()
    assert torch.autograd.grad(y.sum(), x)[0].movedim(2, -1).is_contiguous()


@pytest.mark.parametrize("side", range(1, 6))
@pytest.mark.parametrize("dilation", [2, 3, 4])
def test_dilated_windows_on_small_images(side, dilation, monkeypatch):
    monkeypatch.setattr(pooling, "FEW_NUMBERS", 0)
    monkeypatch.setattr(pooling, "FEW_TAKEN", 0)
    x = torch.randn(2, 3, 5, side, 6, dtype=torch.float64, requires_grad=True)
    for ceil_mode in (False, True):
        options = (2, 1, 1, (dilation, 1), ceil_mode)
        if dilation >= side + 2:
            with pytest.raises(RuntimeError):
                functional.max_pool2d(x, *options)
            continue
        y = functional.max_pool2d(x, *options)
        truth = torch.stack([torch.nn.functional.max_pool2d(one, *options) for one in x])
        torch.testing.assert_close(y, truth)


@pytest.mark.parametrize("lies_last", [False, True])
def test_the_mean_of_all_pixels_has_a_gradient_of_its_size(lies_last):
    x = torch.randn(2, 3, 4, 5, 5, dtype=torch.float64)
    x = (x.movedim(2, -1).contiguous().movedim(-1, 2) if lies_last else x).requires_grad_()
    y = functional.adaptive_avg_pool2d(x, 1)
    truth = torch.stack([torch.nn.functional.adaptive_avg_pool2d(one, 1) for one in x])
    torch.testing.assert_close(y, truth)
    grad = torch.randn_like(truth)
    torch.testing.assert_close(*(torch.autograd.grad(t, x, grad)[0] for t in (y, truth)))
    # A channel's gradient, times something with the channels last, lies so too.
    (functional.adaptive_avg_pool2d(x, 1) * x).sum().backward()
    assert x.grad.stride() == x.stride()


@pytest.mark.parametrize("kind", ["avg", "max"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, (3, 2), (6, 8), (None, 4), [2, None], (12, 16)])
@pytest.mark.parametrize("how", ["last", "contiguous", "shared"])
def test_adaptive_pools(kind, size, how, monkeypatch):
    monkeypatch.setattr(pooling, "FEW_NUMBERS", 0)
    monkeypatch.setattr(pooling, "FEW_TAKEN", 0)
    x = torch.randn(3, 2, 6, 8, 5, dtype=torch.float64).movedim(-1, 2)
    x = x.contiguous() if how == "contiguous" else x[:1].expand_as(x) if how == "shared" else x
    name = f"adaptive_{kind}_pool2d"
    y = getattr(functional, name)(x.requires_grad_(how != "shared"), size)
    truth = torch.stack([getattr(torch.nn.functional, name)(one, size) for one in x])
    torch.testing.assert_close(y, truth)
    if how != "shared":
        grad = torch.randn_like(truth)
        torch.testing.assert_close(*(torch.autograd.grad(t, x, grad)[0] for t in (y, truth)))


def test_adaptive_pools_of_large_windows_and_of_nothing():
    x = torch.randn(2, 3, 20, 32, 32)
    assert torch.equal(functional.adaptive_max_pool2d(x, 1), x.amax((-2, -1), keepdim=True))
    values, indices = functional.adaptive_max_pool2d(x, 2, return_indices=True)
    assert torch.equal(x.flatten(-2).gather(-1, indices.flatten(-2)), values.flatten(-2))
    assert functional.adaptive_avg_pool2d(torch.randn(2, 0, 3, 4, 4), 2).shape == (2, 0, 3, 2, 2)
    with pytest.raises(RuntimeError):
        functional.adaptive_avg_pool2d(x, (2, 2, 2))


@pytest.mark.parametrize(
    ("name", "sides", "args"),
    [
        ("lp_pool1d", (900,), (2, 3)),
        ("lp_pool1d", (900,), (1.0, 3, 2, True)),
        ("lp_pool2d", (30, 30), (2, 2)),
        ("lp_pool2d", (30, 30), (3, (3, 2), (2, 1), True)),
        ("lp_pool2d", (30, 30), (float("inf"), 2)),
    ],
)
def test_norms_of_windows(name, sides, args):
    x = torch.rand(2, 4, *sides, 20, dtype=torch.float64).movedim(-1, 2).requires_grad_()
    y = getattr(functional, name)(x, *args)
    truth = torch.stack([getattr(torch.nn.functional, name)(one, *args) for one in x.unbind(0)])
    torch.testing.assert_close(y, truth)
    assert y.movedim(2, -1).is_contiguous()
    grad = torch.randn_like(truth)
    torch.testing.assert_close(*(torch.autograd.grad(t, x, grad)[0] for t in (y, truth)))
