# SPDX-License-Identifier: MIT
"""What a row of the table of operators is, and the inputs that most rows have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

Tensors = dict[str, torch.Tensor]
_OF_TORCH = (
    "linear",
    "matmul",
    "avg_pool",
    "max_pool",
    "window_convolution",
    "patches",
    "add_patches",
    "resample",
    "scaled",
)
_OF_CPUS = ("glu", "prelu", "softmax")


@dataclass(frozen=True)
class Case:
    """`make(B, dtype)` gives the inputs, named; floating ones named in `inputs` are differentiated."""

    name: str
    family: str
    make: Callable[[int, torch.dtype], Tensors]
    call: Callable[[Tensors], torch.Tensor]
    one: Callable[[Tensors], torch.Tensor]
    exact: bool = True  # bit-equal for any B
    inputs: tuple[str, ...] = field(default=("x", "bias", "residual", "weight", "norm_bias"))

    def exact_on(self, device: str) -> bool:
        """True if results are the same bits for any B there; cuBLAS and cuDNN choose kernels by the whole shape."""
        return self.exact and (device == "cpu" or self.family not in _OF_TORCH)

    def runs_on(self, device: str) -> bool:
        """True if there is a kernel for that device: callers of the others take torch's own function there."""
        return device == "cpu" or self.family not in _OF_CPUS

    def differentiable(self, tensors: Tensors) -> list[str]:
        return [name for name in self.inputs if name in tensors and tensors[name].is_floating_point()]


def rates(B: int) -> torch.Tensor:
    return torch.linspace(0.1, 0.6, B)


def generators(B: int) -> torch.Tensor:
    return torch.stack([torch.arange(B) * 2**40 - 12345, torch.arange(B) + 2**33], 1)


def normal(generator: torch.Generator, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float32).to(dtype)


def maker(rows: tuple[int, ...], columns: int, names: str, drop: bool) -> Callable[[int, torch.dtype], Tensors]:
    """x and residual [B, *rows, columns], the parameters [B, columns], and dropout; each model has its own seed."""

    def make(B: int, dtype: torch.dtype) -> Tensors:
        shapes = {"x": (*rows, columns), "residual": (*rows, columns)}
        tensors: Tensors = {}
        for name in names.split():
            generator = torch.Generator().manual_seed(len(name))
            shape = shapes.get(name, (columns,))
            tensors[name] = torch.stack([normal(generator, dtype, *shape) for _ in range(B)])
        if drop:
            tensors |= {"p": rates(B), "rng": generators(B)}
        return tensors

    return make
