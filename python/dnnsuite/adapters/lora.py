# SPDX-License-Identifier: MIT
"""LoRA on linear layers and embeddings of B models. Ranks are padded: a sum in order does not see zeros at its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from peft.tuners import lora

from .. import nn, ops
from .._fuse.layer_table import register
from .divided import DividedEmbedding
from .lora_layer import LoraLayer


class LoraLinear(LoraLayer):
    """`peft.tuners.lora.Linear` for B models: `[B, *, in]` to `[B, *, out]`.

    `lora_A` is `[B, R, in]` and `lora_B` `[B, out, R]` with the largest rank R.
    """

    torch_class: ClassVar[Any] = lora.Linear

    def _container(self, name: str, layer: Any, rank: int) -> torch.nn.Module:
        first = getattr(layer, name)[self.adapter]
        inputs, outputs = (rank, layer.out_features) if name == "lora_B" else (layer.in_features, rank)
        product = nn.Linear(inputs, outputs, first.bias is not None, device="meta", B=self.B)
        return torch.nn.ModuleDict({self.adapter: product})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.base_layer(x)
        if not self.enabled:
            return result
        dropout, a, b = self._parts()
        p, rng = dropout.draw()
        if p is not None and rng is not None:
            x = dropout.drop(x.to(a.weight.dtype), p, rng)
        if b.bias is None and ops.adds_low_rank(result, x, a.weight, b.weight):
            rows, inputs = (t.reshape(self.B, t.shape[1:-1].numel(), t.shape[-1]) for t in (result, x))
            return ops.low_rank_update(rows, inputs, a.weight, b.weight, self.scale).view(result.shape)
        hidden = ops.linear(x.to(a.weight.dtype), a.weight, in_order=True)
        bias = None if b.bias is None else b.bias * self.scale.unsqueeze(1)
        product = ops.linear(self._scaled(hidden), b.weight, bias, in_order=True)
        return (result + product).to(result.dtype)

    def _parts(self) -> tuple[Any, Any, Any]:
        return self.lora_dropout[self.adapter], self.lora_A[self.adapter], self.lora_B[self.adapter]


def of_each_model(layer: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, tokens: list[int]) -> torch.Tensor:
    """Apply a layer of B models `[B, *, ...]` to the tokens `[1, L, ...]` of each, padded to the longest."""
    parts = x.squeeze(0).split(tokens)
    padded = layer(torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True))
    return torch.cat([row[:count] for row, count in zip(padded, tokens, strict=True)]).unsqueeze(0)


def lora_of_rows(
    layer: LoraLinear, result: torch.Tensor, x: torch.Tensor, tokens: list[int], offsets: Callable[[], torch.Tensor]
) -> torch.Tensor:
    """Add each model's update of a linear layer to the base's `result` on its tokens, whose `offsets` are `[B + 1]`."""
    if not layer.enabled:
        return result
    dropout, a, b = layer._parts()
    if layer.training and any(dropout.rates):
        x = of_each_model(dropout, x.to(a.weight.dtype), tokens)
    else:
        dropout.draw()  # which counts the call
    if b.bias is None and ops.adds_low_rank(result, x, a.weight, b.weight):
        given = result[0], x[0], a.weight, b.weight, layer.scale
        return ops.low_rank_update(*given, offsets(), max(tokens)).unsqueeze(0)
    inputs = x.to(a.weight.dtype)
    added = result if result.dtype == inputs.dtype else result.new_zeros((), dtype=inputs.dtype).expand(result.shape)
    found = _Updated.apply(added[0], inputs[0], a.weight, b.weight, layer.scale.tolist(), layer.ranks, tokens)
    if b.bias is not None:
        counts = torch.tensor(tokens, device=x.device)
        found = found + (b.bias * layer.scale.unsqueeze(1)).repeat_interleave(counts, 0)
    return found.unsqueeze(0) if added is result else (result + found).to(result.dtype)


class _Updated(torch.autograd.Function):
    """y + s_b x A_b^T B_b^T on the rows of `y` `[L, out]` and `x` `[L, in]` that are model b's, of its own rank.

    Each product is one call that scales and adds, because at a few dozen rows a call costs more than its numbers.
    """

    @staticmethod
    def forward(
        ctx: Any, y: Any, x: Any, a: Any, b: Any, scales: list[float], ranks: list[int], tokens: list[int]
    ) -> Any:
        found = x.new_empty(y.shape)
        hidden = []
        parts = zip(scales, ranks, a.unbind(), b.unbind(), *(t.split(tokens) for t in (x, y, found)), strict=True)
        for scale, rank, down, up, own, before, out in parts:
            hidden.append(torch.mm(own, down[:rank].T))
            torch.addmm(before, hidden[-1], up[:, :rank].T, alpha=scale, out=out)
        ctx.save_for_backward(x, a, b, *hidden)
        ctx.layout = scales, ranks, tokens
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
        x, a, b, *hidden = ctx.saved_tensors
        scales, ranks, tokens = ctx.layout
        dx = torch.empty_like(x)
        da, db = torch.zeros_like(a), torch.zeros_like(b)
        rows = (t.split(tokens) for t in (x, dy, dx))
        parts = zip(scales, ranks, hidden, *(t.unbind() for t in (a, b, da, db)), *rows, strict=True)
        for scale, rank, h, down, up, down_grad, up_grad, own, out, into in parts:
            back = up[:, :rank]
            dh = torch.addmm(h, out, back, beta=0, alpha=scale)
            torch.mm(dh.T, own, out=down_grad[:rank])
            torch.addmm(back, out.T, h, beta=0, alpha=scale, out=up_grad[:, :rank])
            if ctx.needs_input_grad[1]:
                torch.mm(dh, down[:rank], out=into)
        return dy, dx if ctx.needs_input_grad[1] else None, da, db, None, None, None


class LoraEmbedding(LoraLayer):
    """`peft.tuners.lora.Embedding` for B models: indices `[B, *]` to `[B, *, D]`; without dropout, as in PEFT.

    `lora_embedding_A` is `[B, R, V]`, in memory `[B, V, R]`, and `lora_embedding_B` `[B, D, R]` with the largest
    rank R.
    """

    torch_class: ClassVar[Any] = lora.Embedding
    factors: ClassVar[dict[str, int]] = {"lora_embedding_A": 0, "lora_embedding_B": 1}

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
