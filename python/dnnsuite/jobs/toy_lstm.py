# SPDX-License-Identifier: MIT
"""Two LSTM cells of width 51 learn sine waves of different phase, all 97 in each step; SGD, mean squared error.

Everybody trains on the same waves; three are held out.
"""

from __future__ import annotations

from typing import Any

from .._lazy import numpy as np
from .._lazy import torch
from ..data.batches import WholeBatch
from ..errors import InvalidArgument, did_you_mean
from ._job import JobConfig
from .declared_job import declare
from .workload import Card, Made, Metric, Preset, Values, Workload, models

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


def loss(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
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
        loss=loss,
        held_out=lambda config, options: waves(config, options, slice(_HELD_OUT)),
        metric=Metric("test_mse", loss, "less", batches=1),
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
