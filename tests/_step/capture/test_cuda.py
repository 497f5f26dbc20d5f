# SPDX-License-Identifier: MIT
import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, nn, optim
from dnnsuite._step.capture.cuda import CudaGraphs
from helpers import make_models


def test_close_is_close_enough():
    graphs = CudaGraphs()
    assert graphs.same(torch.tensor([1.0, float("nan")]), torch.tensor([1.00001, float("nan")]))
    assert not graphs.same(torch.tensor([1.0]), torch.tensor([1.1]))


def model():
    return torch.nn.Sequential(
        torch.nn.Linear(6, 16),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.3),
        torch.nn.LayerNorm(16),
        torch.nn.Linear(16, 4),
    )


def train(capture, loss, count=10):
    array = dnnsuite.fuse(make_models(model, 3), seeds=range(3)).to("cuda")
    optimizer = optim.Adam(array.parameters(), lr=[0.1, 0.05, 0.01])
    schedule = optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    generator = torch.Generator().manual_seed(0)
    losses = []
    with StepRunner(array, optimizer, loss, capture=capture) as runner:
        for _ in range(count):
            x, y = torch.randn(3, 8, 6, generator=generator), torch.randint(4, (3, 8), generator=generator)
            losses.append(runner.step(x.cuda(), y.cuda()).losses())
            schedule.step()
        return torch.stack(losses).cpu(), [p.detach().cpu() for p in array.parameters()], runner.mode


def cross_entropy(array, x, y):
    return nn.functional.cross_entropy(array(x), y)


@pytest.mark.gpu
def test_a_graph_trains_as_the_step_as_written():
    eager, captured = train(False, cross_entropy), train(True, cross_entropy)
    assert captured[2] == "captured"
    torch.testing.assert_close(captured[:2], eager[:2], rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
def test_what_waits_for_the_device_runs_as_written():
    def loss(array, x, y):
        values = cross_entropy(array, x, y)
        return values * (2.0 if values.sum().item() > 4 else 1.0)

    assert train(True, loss)[2].startswith("eager: aten._local_scalar_dense")
