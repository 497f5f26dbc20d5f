# SPDX-License-Identifier: MIT
"""A linear model of [x, x², x³, x⁴] fits a polynomial, by hand-written gradient descent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .._seeds import seed_all
from ._plain_job import PlainJob, SeedUnit
from ._workload import register

if TYPE_CHECKING:
    import torch

_DEGREE = 4


@register("toy_reg")
class ToyRegression(PlainJob):
    """Linear(4, 1), smooth-L1 loss, learning rate 0.01 without an optimizer. The polynomial is drawn from the seed."""

    description = "Linear(4, 1) fits a polynomial of degree 4"
    unit = "samples"
    seed_unit = SeedUnit("samples", 1)
    seed_script = "./regression/polynome/pytorch/run.sh"
    defaults: ClassVar = {"batch_size": 256, "repeat": 20, "number": 1000}
    smoke: ClassVar = {"number": 20}

    @classmethod
    def precisions(cls, device: str) -> list[str]:
        return ["fp32"]

    def setup(self) -> None:
        import torch

        self._generator = torch.Generator().manual_seed(self.config.seed)
        self._weight = torch.randn(_DEGREE, 1, generator=self._generator) * 5
        self._bias = torch.randn(1, generator=self._generator) * 5
        seed_all(self.config.seed)
        self.model = torch.nn.Linear(_DEGREE, 1).to(self.device)

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Powers `[N, 4]` of random x and the polynomial's values `[N, 1]`."""
        import torch

        x = torch.randn(self.config.batch_size, 1, generator=self._generator)
        powers = torch.cat([x**k for k in range(1, _DEGREE + 1)], 1)
        return powers.to(self.device), (powers @ self._weight + self._bias).to(self.device)

    def train(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        import torch

        x, y = batch
        self.model.zero_grad(set_to_none=True)
        loss = torch.nn.functional.smooth_l1_loss(self.model(x), y)
        loss.backward()
        with torch.no_grad():
            for parameter in self.model.parameters():
                assert parameter.grad is not None
                parameter.sub_(parameter.grad, alpha=0.01)
        return loss

    def provenance(self) -> dict[str, Any]:
        return {
            "data": {"source": "synthetic: a polynomial drawn from the seed"},
            "model": {"degree": _DEGREE},
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "optimizer": "gradient descent, lr 0.01",
        }
