# SPDX-License-Identifier: MIT
"""Small jobs of the suite of 2019, whose samples are in memory, of which a batch is taken.

`toy_reg` is a linear model of [x, x², x³, x⁴] that fits a polynomial drawn from the seed; smooth-L1 loss, gradient
descent. `toy_lstm` is two LSTM cells of width 51 that learn sine waves of different phase, all 97 in each step:
everybody trains on the same waves, and three are held out.

`vae` is a variational auto-encoder of pictures of 28 x 28: 784-400-20-400-784, Adam, losses summed over the batch.
`reso` is a sub-pixel convolution network that makes pictures larger: ESPCN, Adam, mean squared error on the luminance
of crops. Its pictures are decoded by `workers` threads during setup. `no_checks` is the original's (save nothing) and
the only behaviour here. Both have a second rate, with a loader in the timed loop.
"""

from __future__ import annotations

from typing import Any

from .._lazy import numpy as np
from .._lazy import torch
from ..data import mnist, super_resolution
from ..data.batches import BatchesInTurn, EndlessLoader, WholeBatch
from ..errors import InvalidArgument, Unavailable, did_you_mean
from ._job import JobConfig
from .cards import FROM_MEMORY
from .declared_job import declare
from .workload import Card, Made, Metric, Preset, Values, Workload, models

_DEGREE = 4
_OTHER_POINTS = 1 << 32  # added to the seed of points that are not trained on


def points(config: JobConfig, options: Values, held_out: int = 0) -> BatchesInTurn:
    """Powers `[N, 4]` of random x and the polynomial's values `[N, 1]`."""

    def begin() -> Any:
        generator = torch.Generator().manual_seed(config.seed)
        weight = torch.randn(_DEGREE, 1, generator=generator) * 5
        bias = torch.randn(1, generator=generator) * 5
        if held_out:
            generator.manual_seed(config.seed + held_out)

        def draw() -> tuple[torch.Tensor, torch.Tensor]:
            x = torch.randn(config.batch_size, 1, generator=generator)
            powers = torch.cat([x**k for k in range(1, _DEGREE + 1)], 1)
            return powers, powers @ weight + bias

        return draw

    return BatchesInTurn(begin, {"source": "synthetic: a polynomial drawn from the seed"})


def regression_loss(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.smooth_l1_loss(model(x), y)


declare(
    Workload(
        name="toy_reg",
        description="Linear(4, 1) fits a polynomial of degree 4",
        unit="samples",
        model=lambda options, hyper: torch.nn.Linear(_DEGREE, 1),
        data=points,
        loss=regression_loss,
        held_out=lambda config, options: points(config, options, _OTHER_POINTS),
        metric=Metric("held_out_loss", regression_loss, "less"),
        optimizer=Made("SGD", {"lr": "lr"}),
        hyper={"lr": 0.01},
        half=(),
        presets={
            "quick": Preset(3, 20, batch_size=256, plan=(1, 4), budget_s=40.0, observed=(20, 20)),
            "default": Preset(3, 100, batch_size=256, plan=(1, 2, 4), budget_s=95.0, observed=(20, 1000)),
        },
        card=Card(
            "regression",
            "Linear(4, 1) of x, x², x³, x⁴; smooth-L1 loss",
            source=("mila2019",),
            about=("none in what is timed: batches are drawn on the CPU in the loop, as the original's are",),
        ),
    )
)


_PERIOD, _WAVES, _HELD_OUT = 20, 100, 3
_DATA_SEED = 2  # the original's
_DTYPES = ("float16", "float32", "float64")


def waves(config: JobConfig, options: Values, chosen: slice = slice(_HELD_OUT, None)) -> WholeBatch:
    """Waves `[97, T-1]` and the same one step later, as one batch of a single sample."""
    length = options["length"]
    if length < 2:
        raise InvalidArgument(f"length {length}: a value and the one after it are needed, so 2 or more")
    starts = np.random.RandomState(_DATA_SEED).randint(-4 * _PERIOD, 4 * _PERIOD, _WAVES)
    found = torch.from_numpy(np.sin((np.arange(length) + starts[:, None]) / _PERIOD)).to(_dtype(options))
    record = {
        "source": f"synthetic: {_WAVES - _HELD_OUT} sine waves, numpy seed {_DATA_SEED}",
        "licence": "none needed",
        "count": _WAVES - _HELD_OUT,
    }
    return WholeBatch((found[chosen, :-1], found[chosen, 1:]), record)


def wave_loss(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(model(x), y)


def _dtype(options: Values) -> torch.dtype:
    if options["dtype"] not in _DTYPES:
        hint = did_you_mean(str(options["dtype"]), _DTYPES)
        raise InvalidArgument(f"dtype {options['dtype']!r} is not one of {', '.join(_DTYPES)}{hint}")
    dtype: torch.dtype = getattr(torch, options["dtype"])
    return dtype


declare(
    Workload(
        name="toy_lstm",
        description="two LSTM cells learn sine waves",
        unit="time steps",
        options={"dtype": "float32", "length": 1000},
        model=lambda options, hyper: models.SineLSTM().to(_dtype(options)),
        data=waves,
        loss=wave_loss,
        held_out=lambda config, options: waves(config, options, slice(_HELD_OUT)),
        metric=Metric("test_mse", wave_loss, "less", batches=1),
        optimizer=Made("SGD", {"lr": "lr"}),
        hyper={"lr": 0.01},
        half=(),  # `dtype` says it
        items_per_sample=lambda options: (_WAVES - _HELD_OUT) * (options["length"] - 1),
        presets={
            "quick": Preset(3, 2, batch_size=1, plan=(1, 2), budget_s=40.0, observed=(12, 1), options={"length": 100}),
            "default": Preset(
                3, 2, batch_size=1, plan=(1, 2, 4), budget_s=95.0, observed=(20, 5), cuda={"iters_per_epoch": 5}
            ),
        },
        card=Card(
            "sequence",
            "two LSTM cells of 51 and a linear layer; mean squared error",
            source=("hochreiter1997", "mila2019"),
            about=("the rate counts time steps; the original counted optimizer steps, which its unit is converted to",),
        ),
    )
)


_TEST_BATCH = 128  # of the original, whatever the training has


def pictures(config: JobConfig, options: Values) -> BatchesInTurn:
    """Pictures `[N, 784]` in [0, 1]."""
    found = mnist.load(config.data, config.dataroot, config.data_seed)
    pixels = _pixels(found, config.device)
    return BatchesInTurn.of_rows([pixels], config.batch_size, config.data_seed, found.origin.record(), _from_bytes)


def _from_bytes(pixels: torch.Tensor) -> torch.Tensor:
    return pixels.float() / 255


def test_pictures(config: JobConfig, options: Values) -> WholeBatch:
    """All pictures of the test part as one batch."""
    found = mnist.load(config.data, config.dataroot, config.data_seed, train=False)
    pixels = _pixels(found, config.device)
    return WholeBatch((_from_bytes(pixels),), found.origin.record())


def vae_files(config: JobConfig, options: Values) -> Any:
    """Pictures one by one as an image and then a tensor, as torchvision's data set has them."""
    found = mnist.load(config.data, config.dataroot, config.data_seed)
    loader = EndlessLoader(mnist.OneByOne(found), config.batch_size, 1, config.data_seed)
    return loader, lambda batch: (batch,), found.origin


def vae_loss(model: Any, x: torch.Tensor) -> torch.Tensor:
    """Cross-entropy and divergence, summed over the batch."""
    reconstruction, mean, log_variance = model(x)
    with torch.autocast(x.device.type, enabled=False):  # which refuses this cross-entropy on a GPU
        return models.negative_elbo(
            models.widened(reconstruction), x, models.widened(mean), models.widened(log_variance)
        )


def loss_per_image(model: Any, x: torch.Tensor) -> torch.Tensor:
    return sum(vae_loss(model, part).double() for part in x.split(_TEST_BATCH)) / len(x)  # type: ignore[return-value]


def _pixels(found: mnist.Pictures, device: str) -> torch.Tensor:
    return torch.from_numpy(found.images.copy()).flatten(1).to(device)


declare(
    Workload(
        name="vae",
        description="a variational auto-encoder learns MNIST",
        unit="images",
        model=lambda options, hyper: models.VAE(),
        data=pictures,
        loss=vae_loss,
        held_out=test_pictures,
        metric=Metric("test_loss_per_image", loss_per_image, "less", batches=1),
        optimizer=Made("Adam", {"lr": "lr"}),
        hyper={"lr": 1e-3},
        files=vae_files,
        reseed=False,
        presets={
            "quick": Preset(3, 8, batch_size=128, plan=(1, 4), budget_s=40.0, observed=(15, 5)),
            "default": Preset(3, 16, batch_size=128, plan=(1, 2, 4), budget_s=95.0, observed=(100, 30)),
        },
        card=Card(
            "generative",
            "MLP 784-400-20-400-784; cross-entropy and divergence",
            source=("kingma2014", "lecun1998", "mila2019"),
            about=(FROM_MEMORY, "one loader for all observations: the original starts a new one in each"),
            changes=("a second rate with the loader in the loop (numbers)",),
        ),
    )
)


CROP = 256


def pairs(config: JobConfig, options: Values) -> BatchesInTurn:
    """Small pictures `[N, 1, 256/r, 256/r]` and the large ones `[N, 1, 256, 256]`, in [0, 1]."""
    train, _, origin = _loaded(config, options)
    return BatchesInTurn.of_rows(train, config.batch_size, config.data_seed, origin.record(), _from_bytes)


def test_pairs(config: JobConfig, options: Values) -> WholeBatch:
    """All pairs of the test part as one batch, and how many are looked at together, `[n]` zeros."""
    if options["testBatchSize"] < 1:
        raise InvalidArgument(f"testBatchSize {options['testBatchSize']} is below 1")
    _, test, origin = _loaded(config, options)
    together = torch.zeros(options["testBatchSize"], device=config.device)
    return WholeBatch((*map(_from_bytes, test), together), origin.record())


def _loaded(config: JobConfig, options: Values) -> Any:
    train, test, origin = super_resolution.load(
        config.data, config.dataroot, options["upscale_factor"], CROP, config.data_seed, options["workers"]
    )
    on_device = ([torch.from_numpy(array)[:, None].to(config.device) for array in part] for part in (train, test))
    return *on_device, origin


def reso_files(config: JobConfig, options: Values) -> Any:
    try:
        pictures = super_resolution.Decoding(config.data, config.dataroot, options["upscale_factor"], CROP)
    except Unavailable:  # noise was asked for: nothing is decoded
        return None
    loader = EndlessLoader(pictures, config.batch_size, options["workers"], config.data_seed)
    return loader, lambda batch: tuple(map(_from_bytes, batch)), pictures.origin


def reso_loss(model: Any, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(models.widened(model(low)), high)


def psnr(model: Any, low: torch.Tensor, high: torch.Tensor, together: torch.Tensor) -> torch.Tensor:
    """Peak signal-to-noise ratio in dB, the mean over groups of pictures."""
    parts = zip(low.split(len(together)), high.split(len(together)), strict=True)
    return torch.stack([-10 * reso_loss(model, *part).double().log10() for part in parts]).mean()


declare(
    Workload(
        name="reso",
        description="ESPCN makes pictures twice as large",
        unit="images",
        options={"upscale_factor": 2, "testBatchSize": 8, "workers": 8, "no_checks": True, "lr": 0.1},
        model=lambda options, hyper: models.ESPCN(options["upscale_factor"]),
        data=pairs,
        loss=reso_loss,
        held_out=test_pairs,
        metric=Metric("psnr", psnr, batches=1),
        optimizer=Made("Adam", {"lr": "lr"}),
        hyper={"lr": 0.1},
        files=reso_files,
        reseed=False,
        presets={
            "quick": Preset(3, 4, batch_size=1, plan=(1, 2), budget_s=40.0, observed=(12, 1), options={"workers": 1}),
            "default": Preset(3, 4, batch_size=64, plan=(1, 2, 4), budget_s=95.0, observed=(50, 20)),
        },
        card=Card(
            "super-resolution",
            "ESPCN: convolutions of 64, 64, 32 and pixel shuffle; mean squared error",
            source=("shi2016", "arbelaez2011", "mila2019"),
            about=(FROM_MEMORY, "nothing is saved (the original's --no-checks)"),
            changes=("a second rate with the loader in the loop (numbers)",),
        ),
    )
)
