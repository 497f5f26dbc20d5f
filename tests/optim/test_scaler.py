# SPDX-License-Identifier: MIT
import io

import pytest
import torch

from array_parameters import array_parameters
from dnnsuite import StepRunner, fuse, optim
from dnnsuite.errors import InvalidArgument, Unavailable
from helpers import make_models


def make(B=3, **options):
    (parameter,) = array_parameters(torch.randn(B, 4))
    options = {"init_scale": 8.0, "growth_interval": 2} | options
    return parameter, optim.Adam([parameter], lr=0.1), optim.GradScaler("cpu", B=B, **options)


def losses(parameter, bad=()):
    values = parameter.square().sum(1)
    return values * torch.tensor([torch.inf if b in bad else 1.0 for b in range(len(values))])


def train(parameter, optimizer, scaler, bad=(), unscale=False):
    optimizer.zero_grad()
    scaler.scale(losses(parameter, bad)).sum().backward()
    if unscale:
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()


@pytest.mark.parametrize("unscale", [False, True])
def test_an_overflow_is_the_models_own(unscale):
    parameter, optimizer, scaler = make()
    (plain,) = array_parameters(parameter.detach().clone())
    reference = optim.Adam([plain], lr=0.1)
    for bad in ((), (1,), ()):
        train(parameter, optimizer, scaler, bad, unscale)
        plain.grad = None
        plain.square().sum().backward()
        reference.step()
    assert torch.equal(parameter[[0, 2]], plain[[0, 2]])  # scales are powers of two
    assert optimizer.state[parameter]["step"].tolist() == [3.0, 2.0, 3.0]
    assert scaler.get_scale().tolist() == [16.0, 4.0, 16.0]


@pytest.mark.parametrize("index", range(3))
def test_scales_are_those_of_torchs_scaler(index):
    history = [(), (1,), (), (), (0, 1), (), (2,), ()]
    parameter, optimizer, scaler = make(growth_factor=[2.0, 4.0, 3.0], backoff_factor=[0.5, 0.25, 0.1])
    alone = torch.nn.Parameter(torch.ones(4))
    sgd = torch.optim.SGD([alone], lr=0.0)
    own = torch.amp.GradScaler(
        "cpu",
        init_scale=8.0,
        growth_interval=2,
        growth_factor=[2.0, 4.0, 3.0][index],
        backoff_factor=[0.5, 0.25, 0.1][index],
    )
    for bad in history:
        train(parameter, optimizer, scaler, bad)
        alone.grad = None
        own.scale(alone.sum() * (torch.inf if index in bad else 1.0)).backward()
        own.step(sgd)
        own.update()
        assert float(scaler.get_scale()[index]) == pytest.approx(own.get_scale(), rel=1e-6)


def test_gradients_are_as_without_scale_when_unscaled():
    parameter, optimizer, scaler = make(init_scale=[2.0, 1024.0, 8.0])
    scaler.scale(losses(parameter)).sum().backward()
    scaler.unscale_(optimizer)
    assert torch.equal(parameter.grad, 2 * parameter.detach())
    norms = optim.clip_grad_norm_([parameter], 1.0)
    assert norms.shape == (3,)
    with pytest.raises(InvalidArgument, match="already"):
        scaler.unscale_(optimizer)


def test_frozen_models_keep_their_scale_and_clipping_is_of_unscaled_gradients():
    (parameter,) = array_parameters(torch.ones(2, 4))
    optimizer = optim.SGD([parameter], lr=1.0, max_grad_norm=0.5)
    scaler = optim.GradScaler("cpu", init_scale=8.0, growth_interval=1, B=2)
    optimizer.freeze(0)
    train(parameter, optimizer, scaler, bad=(0,))
    assert scaler.get_scale().tolist() == [8.0, 16.0]
    assert optimizer.grad_norms[1].item() == 4.0
    torch.testing.assert_close(parameter[1], torch.full((4,), 1 - 0.25))
    assert torch.equal(parameter[0], torch.ones(4))


def test_a_part_shares_the_scales():
    parameter, _, scaler = make()
    part = scaler.narrow(1, 2)
    scaled = part.scale(torch.ones(2))
    assert scaled.tolist() == [8.0, 8.0]
    (own,) = array_parameters(parameter.detach()[1:])
    own.grad = torch.tensor([[1.0] * 4, [torch.nan] * 4])
    part.step(optim.SGD([own]))
    part.update()
    assert scaler.get_scale().tolist() == [8.0, 8.0, 4.0]


def test_state_and_selection():
    *_, scaler = make()
    scaler.update([1.0, 2.0, 4.0])
    file = io.BytesIO()
    torch.save(scaler.state_dict(), file)
    file.seek(0)
    *_, again = make()
    again.load_state_dict(torch.load(file, weights_only=True))
    again.select([2, None, 0], init_scale=64.0)
    assert again.get_scale().tolist() == [4.0, 64.0, 1.0]
    again.select([0])
    assert again.B == 1


def test_can_be_switched_off():
    parameter, optimizer, _ = make()
    scaler = optim.GradScaler("cpu", enabled=False, B=3)
    before = parameter.detach().clone()
    train(parameter, optimizer, scaler, unscale=True)
    assert not scaler.is_enabled()
    assert scaler.state_dict() == {}
    assert not torch.equal(parameter, before)


@pytest.mark.parametrize(("width", "capture"), [(3, True), (1, False)])
def test_a_step_runner_scales_each_model(width, capture):
    def run(scaler):
        array = fuse(make_models(lambda: torch.nn.Linear(4, 2), 3))
        optimizer = optim.Adam(array.parameters(), lr=0.1)
        with StepRunner(
            array,
            optimizer,
            lambda a, x: a(x).square().sum((1, 2)),
            threads=1,
            width=width,
            capture=capture,
            scaler=scaler,
        ) as runner:
            for x in data:
                runner.step(x).losses()
        return list(array.parameters())

    data = torch.randn(6, 3, 5, 4, generator=torch.Generator().manual_seed(3))
    plain = run(None)
    data[2, 1, 0, 0] = torch.inf
    scaler = optim.GradScaler("cpu", init_scale=8.0, growth_interval=100, B=3)
    scaled = run(scaler)
    assert scaler.get_scale().tolist() == [8.0, 4.0, 8.0]
    for a, b in zip(scaled, plain, strict=True):
        assert torch.equal(a[[0, 2]], b[[0, 2]])
        assert a[1].isfinite().all()


def test_refuses():
    parameter, _, scaler = make()
    with pytest.raises(InvalidArgument, match="sum them after"):
        scaler.scale(torch.tensor(1.0))
    with pytest.raises(InvalidArgument, match=r"torch\.amp"):
        scaler.step(torch.optim.SGD([parameter]))
    with pytest.raises(InvalidArgument, match="growth_factor must be between"):
        optim.GradScaler("cpu", growth_factor=1.0, B=2)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_named():
    with pytest.raises(Unavailable, match="device='cpu'"):
        optim.GradScaler(B=2)


def test_a_part_updates_its_scales_while_another_is_between_forward_and_backward():
    scaler = optim.GradScaler(B=2, device="cpu")
    first, second = scaler.narrow(0, 1), scaler.narrow(1, 1)
    losses = torch.ones(1, dtype=torch.float64, requires_grad=True)  # autograd saves the scale itself
    scaled = first.scale(losses)
    second.update(4.0)
    scaled.sum().backward()
    assert losses.grad.item() == first.get_scale().item() == 65536.0
    assert scaler.get_scale().tolist() == [65536.0, 4.0]
