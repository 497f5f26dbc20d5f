# SPDX-License-Identifier: MIT
"""Workloads of the suite of 2019 against loops written out by hand: the same losses, to the bit."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from dnnsuite import jobs, models
from dnnsuite.data import mnist, ratings, super_resolution
from dnnsuite.data.batches import Order
from dnnsuite.errors import InvalidArgument
from dnnsuite.models.perceptrons import NeuMF
from dnnsuite.suites.mila import unit_of
from job_runs import losses, make

SMALL: dict[str, dict[str, Any]] = {
    "vae": {"batch_size": 8},
    "toy_reg": {"batch_size": 8},
    "toy_lstm": {"length": 40},
    "recom": {"batch_size": 16, "interactions": 20_000, "factors": 8, "layers": "32 16"},
    "reso": {"batch_size": 1, "workers": 1, "testBatchSize": 2},
}


@pytest.fixture(autouse=True)
def few_users_and_films(monkeypatch: pytest.MonkeyPatch) -> None:
    """MovieLens' own tables have a row for each of 165,000: an optimizer's step over them takes most of a second."""
    monkeypatch.setattr(ratings, "ML_20M", (2000, 500))


def small(name: str, **config: Any) -> Any:
    return make(name, **{"seed": 3, "data_seed": 4, "data": "synthetic", **SMALL[name], **config})


def vae() -> Iterator[float]:
    pixels = torch.from_numpy(mnist.load("synthetic", seed=4).images.copy()).flatten(1)
    order = Order(len(pixels), 4)
    torch.manual_seed(3)
    model = models.VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        x = pixels[order.take(8)].float() / 255
        reconstruction, mean, log_variance = model(x)
        entropy = F.binary_cross_entropy(reconstruction, x, reduction="sum")
        divergence = -0.5 * torch.sum(1 + log_variance - mean.square() - log_variance.exp())
        yield _learn(entropy + divergence, optimizer)


def toy_reg() -> Iterator[float]:
    generator = torch.Generator().manual_seed(3)
    weight, bias = torch.randn(4, 1, generator=generator) * 5, torch.randn(1, generator=generator) * 5
    torch.manual_seed(3)
    model = torch.nn.Linear(4, 1)
    while True:
        x = torch.randn(8, 1, generator=generator)
        powers = torch.cat([x, x**2, x**3, x**4], 1)
        loss = F.smooth_l1_loss(model(powers), powers @ weight + bias)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.01 * parameter.grad
        yield float(loss.detach())


def recom() -> Iterator[float]:
    data = ratings.load("synthetic", interactions=20_000, seed=4)
    sampler = ratings.Sampler(data, 16, 4, 4)
    torch.manual_seed(3)
    model = NeuMF(data.users, data.items, 8, [32, 16])
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    while True:
        batch = sampler.batch()
        logits = model(batch.users, batch.items)
        yield _learn(F.binary_cross_entropy_with_logits(logits, batch.labels), optimizer)


def reso() -> Iterator[float]:
    (low, high), _, _ = super_resolution.load("synthetic", None, 2, 256, 4, 1)
    order = Order(len(low), 4)
    torch.manual_seed(3)
    model = models.ESPCN(2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    while True:
        chosen = order.take(1).numpy()
        x, y = (torch.from_numpy(part[chosen])[:, None].float() / 255 for part in (low, high))
        yield _learn(F.mse_loss(model(x), y), optimizer)


def _learn(loss: torch.Tensor, optimizer: torch.optim.Optimizer) -> float:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


@pytest.mark.parametrize("by_hand", [vae, toy_reg, recom, reso])
def test_losses_are_those_of_a_loop_by_hand(by_hand):
    expected = by_hand()
    assert losses(small(by_hand.__name__), 4) == pytest.approx([next(expected) for _ in range(4)], rel=1e-6)


def test_all_waves_are_one_batch_and_learnt_by_sgd():
    job = small("toy_lstm", dtype="float64")
    x, y = job.batch(0)
    assert x.shape == y.shape == (97, 39)
    assert x.dtype == torch.float64
    torch.manual_seed(3)
    model = models.SineLSTM().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    assert losses(job, 2) == pytest.approx([_learn(F.mse_loss(model(x), y), optimizer) for _ in range(2)])
    assert small("toy_lstm", length=1000).items_per_step == unit_of("toy_lstm", "time steps")["items"] == 97 * 999


@pytest.mark.parametrize("name", SMALL)
def test_training_moves_the_measure_on_held_out_data(name):
    job = small(name, batch_size=2 if name == "reso" else 32)
    metric = job.workload.metric
    (before,) = job.metrics().values()
    losses(job, 8 if name == "reso" else 20)
    (after,) = job.metrics().values()
    assert metric.reached(after, before)


@pytest.mark.parametrize("name", ["vae", "reso"])
def test_a_second_rate_has_a_loader_in_the_loop(name):
    job = small(name, data="auto")
    origin = job.with_loader()
    assert origin.record()["source"]
    losses(job, 2)
    job.close()


ARRAYS: dict[str, dict[str, Any]] = {  # the others have layers that arrays in other tests have
    **{name: SMALL[name] for name in ("vae", "toy_reg", "toy_lstm")},
    "recom": {**SMALL["recom"], "interactions": 2000},
    "wlm": {"batch_size": 4, "emsize": 8, "nhid": 8, "bptt": 4, "vocab_size": 300, "clip": 0.01},
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_is_equal_to_models_alone(name):
    kind, options = jobs.get(name), dict(ARRAYS[name])
    config = jobs.JobConfig(
        B=2, batch_size=options.pop("batch_size", 2), precision="fp64", seed=1, data="synthetic",
        hyper={key: [value / 2, value] for key, value in kind.workload.hyper.items()}, options=options,
    )  # fmt: skip
    assert kind.check_equality(config, steps=3)["passed"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("vae", {"latent": 2}, "no option 'latent'"),
        ("toy_reg", {"depth": 2}, "no option 'depth'"),
        ("toy_lstm", {"dtype": "float8"}, "dtype 'float8' is not one of float16, float32, float64"),
        ("toy_lstm", {"length": 1}, "length 1: a value and the one after it are needed"),
        ("recom", {"layers": "wide"}, "layers must be widths such as"),
    ],
)
def test_what_cannot_be_trained_is_refused(name, options, message):
    with pytest.raises(InvalidArgument, match=message):
        small(name, **options)


def test_no_test_batch_is_refused():
    with pytest.raises(InvalidArgument, match="testBatchSize 0 is below 1"):
        small("reso", testBatchSize=0).metrics()


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision(precision):
    job = small("vae", batch_size=32, precision=precision)
    values = losses(job, 40)
    assert sum(values[-5:]) < 0.8 * sum(values[:5])


def test_hyperparameters_may_be_given_as_options_of_a_suite():
    job = small("reso", lr=0.5)
    assert job.optimizers[0].param_groups[0]["lr"] == 0.5
    assert jobs.get("reso").settings("default")["lr"] == 0.1
