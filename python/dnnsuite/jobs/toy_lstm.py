# SPDX-License-Identifier: MIT
"""An LSTM learns sine waves of different phase, all of them in each step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .._seeds import seed_all
from ..errors import InvalidArgument, did_you_mean
from ._plain_job import PlainJob, SeedUnit
from ._workload import JobConfig, register

if TYPE_CHECKING:
    import torch

_PERIOD, _WAVES, _HELD_OUT, _LENGTH = 20, 100, 3, 1000
_DATA_SEED = 2  # the original's: everybody trains on these waves
_DTYPES = ("float16", "float32", "float64")


@register("toy_lstm")
class ToyLSTM(PlainJob):
    """Two cells of width 51, SGD 0.01, mean squared error over 97 waves; batch_size is not used.

    Options: `dtype` of the data and of the model, `length` of the waves. `metrics` has the error on the three waves
    that are left out. Raises InvalidArgument for another dtype, or a wave that is too short.
    """

    description = "two LSTM cells learn sine waves"
    unit = "time steps"
    seed_unit = SeedUnit("optimizer steps", (_WAVES - _HELD_OUT) * (_LENGTH - 1))
    seed_script = "./time_sequence_prediction/lstm/pytorch/run.sh"
    defaults: ClassVar = {"batch_size": 1, "repeat": 20, "number": 5, "dtype": "float32", "length": _LENGTH}
    smoke: ClassVar = {"repeat": 12, "number": 1, "length": 100}

    def __init__(self, config: JobConfig) -> None:
        super().__init__(config)
        if self.options["dtype"] not in _DTYPES:
            hint = did_you_mean(str(self.options["dtype"]), _DTYPES)
            raise InvalidArgument(f"dtype {self.options['dtype']!r} is not one of {', '.join(_DTYPES)}{hint}")
        if self.options["length"] < 2:
            raise InvalidArgument(
                f"length {self.options['length']}: a value and the one after it are needed, so 2 or more"
            )

    @classmethod
    def precisions(cls, device: str) -> list[str]:
        return ["fp32"]  # `dtype` says it

    @property
    def items_per_step(self) -> int:
        return (_WAVES - _HELD_OUT) * (self.options["length"] - 1)

    def setup(self) -> None:
        import torch

        from ..models import SineLSTM

        dtype = getattr(torch, self.options["dtype"])
        waves = _waves(self.options["length"]).to(self.device, dtype)
        self._training = waves[_HELD_OUT:, :-1], waves[_HELD_OUT:, 1:]
        self._test = waves[:_HELD_OUT, :-1], waves[:_HELD_OUT, 1:]
        seed_all(self.config.seed)
        self.model = SineLSTM().to(self.device, dtype)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """All waves `[97, T-1]`, and the same one step later."""
        return self._training

    def train(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        import torch

        def closure() -> torch.Tensor:
            self.optimizer.zero_grad(set_to_none=True)
            loss = torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])
            loss.backward()
            return loss

        return self.optimizer.step(closure)

    def metrics(self) -> dict[str, float]:
        import torch

        x, y = self._test
        with torch.no_grad():
            return {"test_mse": float(torch.nn.functional.mse_loss(self.model(x), y))}

    def provenance(self) -> dict[str, Any]:
        return {
            "data": {
                "source": f"synthetic: {_WAVES - _HELD_OUT} sine waves, numpy seed {_DATA_SEED}",
                "licence": "none needed",
                "count": _WAVES - _HELD_OUT,
            },
            "model": {"cells": 2, "width": 51, **self.options},
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "optimizer": "SGD, lr 0.01",
        }


def _waves(length: int) -> torch.Tensor:
    """`[100, length]` float64: sin(i/20) from a random start each."""
    import numpy as np
    import torch

    starts = np.random.RandomState(_DATA_SEED).randint(-4 * _PERIOD, 4 * _PERIOD, _WAVES)
    return torch.from_numpy(np.sin((np.arange(length) + starts[:, None]) / _PERIOD))
