# SPDX-License-Identifier: MIT
"""Quantized layers of bitsandbytes under the adapters of B models.

The base's own layer runs once on the rows of all models: its weight is read, and dequantized, once a call in the place
of B times. A layer of int8 with a threshold chooses columns by all rows that it gets, so there each model's rows are a
call of their own.
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import bitsandbytes
import torch
from bitsandbytes.functional import _convert_weight_packed_for_cpu_inverse, dequantize_4bit
from peft.tuners.lora import bnb as of_peft
from torch.utils.weak import WeakTensorKeyDictionary

from .._fuse.layer_table import register
from .divided import HeldLayer
from .lora import LoraLinear
from .places import KINDS

__all__ = ["Linear4bit", "Linear8bitLt", "Lora4bit", "Lora8bit"]


_before: Any = WeakTensorKeyDictionary()  # weights of layers, and their states, before they were packed anew


class Linear4bit(HeldLayer):
    """`bitsandbytes.nn.Linear4bit` (NF4, FP4) of B models: `[B, *, in]` to `[B, *, out]`."""

    torch_class: ClassVar[Any] = bitsandbytes.nn.Linear4bit

    def __init__(self, layer: torch.nn.Module, *, B: int) -> None:
        super().__init__(layer, B=B)
        # In eval mode on a CPU bitsandbytes packs the layer's own weight anew, in another order and for products that
        # have no gradient: this one computes with the weight and the state as they were.
        weight: Any = layer.weight
        if weight not in _before or not getattr(weight.quant_state, "packing_format_for_cpu", False):
            held = weight.detach().as_subclass(torch.Tensor), copy.copy(weight.quant_state)
            repacked = getattr(weight.quant_state, "packing_format_for_cpu", False)  # which rounds the scales
            _before[weight] = _convert_weight_packed_for_cpu_inverse(*held) if repacked else held
        self.__dict__.update(zip(("packed", "state"), _before[weight], strict=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dtype = self.layer.compute_dtype or x.dtype
        bias = None if self.layer.bias is None else self.layer.bias.to(dtype)
        product = _ProductOf4Bits.apply(x.to(dtype), bias, self.packed, self.state)
        return product.to(x.dtype)


class _ProductOf4Bits(torch.autograd.Function):
    """x `[*, in]` times the weight `[out, in]`, which is dequantized again for the gradient of x."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bias: torch.Tensor | None, packed: torch.Tensor, state: Any) -> torch.Tensor:
        ctx.weight = packed, state
        return torch.nn.functional.linear(x, dequantize_4bit(packed, state).to(x.dtype), bias)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return dy @ dequantize_4bit(*ctx.weight).to(dy.dtype), None, None, None


class Linear8bitLt(HeldLayer):
    """`bitsandbytes.nn.Linear8bitLt` of B models: `[B, *, in]` to `[B, *, out]`."""

    torch_class: ClassVar[Any] = bitsandbytes.nn.Linear8bitLt

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.layer.state.threshold:
            return torch.stack([self.layer(one) for one in x])
        return self.layer(x.flatten(0, -2)).unflatten(0, x.shape[:-1])


class Lora4bit(LoraLinear):
    """PEFT's LoRA over a 4-bit layer for B models: `[B, *, in]` to `[B, *, out]`."""

    torch_class: ClassVar[Any] = of_peft.Linear4bit


class Lora8bit(LoraLinear):
    """PEFT's LoRA over an 8-bit layer for B models: `[B, *, in]` to `[B, *, out]`."""

    torch_class: ClassVar[Any] = of_peft.Linear8bitLt


for _layer in (Linear4bit, Linear8bitLt, Lora4bit, Lora8bit):
    register(_layer)
KINDS.update({kind.torch_class: kind for kind in (Lora4bit, Lora8bit)})
