# SPDX-License-Identifier: MIT
"""LoRA and DoRA on linear layers, and LoRA on embeddings, of B models. Each is computed at its own rank, or with a sum
in order, which does not see zeros at its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from peft.tuners import lora

from .. import nn, ops
from .._fuse.layer_table import register
from ..ops.shared import is_kept, spread
from .divided import DividedEmbedding
from .lora_layer import MAGNITUDE, LoraLayer, is_dora


def beside_rows(vectors: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """View `[B, D]` as it is added to x `[B, *, D]`."""
    return vectors.view(len(vectors), *(1,) * (x.dim() - 2), -1)


class LoraLinear(LoraLayer):
    """`peft.tuners.lora.Linear` for B models: `[B, *, in]` to `[B, *, out]`.

    `lora_A` is `[B, R, in]` and `lora_B` `[B, out, R]` with the largest rank R. With DoRA, `lora_magnitude_vector` is
    `[B, out]`: the norms of the rows of the weight that W + s B A stands for.
    """

    torch_class: ClassVar[Any] = lora.Linear

    @classmethod
    def can_fuse(cls, models: Sequence[Any]) -> bool:
        """Return True for plain layers, and for DoRA on torch's linear layer."""
        held = all(type(model.base_layer) is torch.nn.Linear or not is_dora(model) for model in models)
        return held and super().can_fuse(models)

    def recorded_values(self) -> tuple[Any, ...]:
        return tuple(self.ranks)  # which the operator is called with

    def _container(self, name: str, layer: Any, rank: int) -> torch.nn.Module:
        if name == MAGNITUDE:
            held = torch.nn.Module()
            held.weight = torch.nn.Parameter(torch.empty(self.B, layer.out_features, device="meta"))
            return torch.nn.ModuleDict({self.adapter: held})
        first = getattr(layer, name)[self.adapter]
        inputs, outputs = (rank, layer.out_features) if name == "lora_B" else (layer.in_features, rank)
        product = nn.Linear(inputs, outputs, first.bias is not None, device="meta", B=self.B)
        return torch.nn.ModuleDict({self.adapter: product})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.updated(self.base_layer(x), x)

    def updated(
        self,
        result: torch.Tensor,
        x: torch.Tensor,
        tokens: Sequence[int] = (),
        offsets: Callable[[], torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """Add each model's update to the base's `result`; of rows `[1, L, *]` each has so many `tokens`."""
        if not self.enabled:
            return result
        dropout, a, b = (getattr(self, name)[self.adapter] for name in ("lora_dropout", "lora_A", "lora_B"))
        p, rng = dropout.draw()
        if MAGNITUDE in self.factors:
            return self._dora(result, x, p, rng)
        y = result
        if b.bias is not None:
            bias = b.bias * self.scale.unsqueeze(1)
            counts = torch.tensor(tokens, device=x.device)
            y = y + (bias.repeat_interleave(counts, 0) if tokens else beside_rows(bias, y))
        found = ops.low_rank(y, x, a.weight, b.weight, self.scale, self.ranks, p, rng, tokens, offsets)
        return found.to(result.dtype)

    def _dora(self, result: torch.Tensor, x: torch.Tensor, p: Any, rng: Any) -> torch.Tensor:
        """Scale the rows of W + s B A to the trained magnitudes. Their norms take no gradient, as in PEFT."""
        a, b, magnitude = (getattr(self, name)[self.adapter].weight for name in self.factors)
        weight, bias = self.weight, self.bias
        if weight.dtype != a.dtype:
            weight = spread(weight[:1].to(a.dtype), self.B) if is_kept(weight) else weight.to(a.dtype)
        with torch.no_grad():
            each = zip(weight, self.scale, b, a, strict=True)
            norms = torch.stack([torch.linalg.norm(own + s * (up @ down), dim=1) for own, s, up, down in each])
        ratio = beside_rows(magnitude / norms, result)
        x = x.to(a.dtype)
        if p is None:
            base = result.to(a.dtype) if bias is None else result - beside_rows(bias, result)
        else:
            x = ops.dropout(x, p, rng)
            base = ops.linear(x, weight)
        found = ratio * ops.low_rank(base, x, a, b, self.scale, self.ranks)
        return (result + (found - base)).to(result.dtype)


class LoraEmbedding(LoraLayer):
    """`peft.tuners.lora.Embedding` for B models: indices `[B, *]` to `[B, *, D]`; without dropout, as in PEFT.

    `lora_embedding_A` is `[B, R, V]`, in memory `[B, V, R]`, and `lora_embedding_B` `[B, D, R]` with the largest
    rank R.
    """

    torch_class: ClassVar[Any] = lora.Embedding
    factors: dict[str, int] = {"lora_embedding_A": 0, "lora_embedding_B": 1}  # noqa: RUF012

    def _container(self, name: str, layer: Any, rank: int) -> torch.nn.Module:
        base = layer.base_layer
        sizes = (base.embedding_dim, rank) if name == "lora_embedding_B" else (rank, base.num_embeddings)
        return torch.nn.ParameterDict({self.adapter: torch.nn.Parameter(torch.empty(self.B, *sizes, device="meta"))})

    def _held(self, layer: Any, name: str) -> dict[str, Any]:
        held: dict[str, Any] = getattr(layer, name)._parameters
        return held

    @staticmethod
    def _laid_out(name: str, parameter: torch.nn.Parameter) -> torch.nn.Parameter:
        if name == "lora_embedding_A":
            parameter.data = parameter.data.transpose(1, 2).contiguous().transpose(1, 2)
        return parameter

    @classmethod
    def can_fuse(cls, models: Sequence[Any]) -> bool:
        """Return True for plain layers over torch's embeddings that only look rows up."""
        return super().can_fuse(models) and all(_looks_up(model) for model in models)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.base_layer(input)
        if not self.enabled:
            return result
        a, b = (getattr(self, name)[self.adapter] for name in self.factors)
        padding = getattr(self.base_layer, "padding_idx", None)
        rows = nn.functional.embedding(input, a.transpose(1, 2), padding)
        return (result + ops.linear(self._scaled(rows), b, in_order=True)).to(result.dtype)


def _looks_up(layer: Any) -> bool:
    base = layer.base_layer
    settings = base.max_norm is not None, base.scale_grad_by_freq, base.sparse
    return type(base) in (torch.nn.Embedding, DividedEmbedding) and not any(settings) and layer.tp_layer is None


register(LoraLinear)
register(LoraEmbedding)
