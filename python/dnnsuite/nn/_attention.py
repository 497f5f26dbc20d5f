# SPDX-License-Identifier: MIT
"""Multi-head attention of B models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import ops
from ..errors import InvalidArgument
from ._base import ArrayModule, check_models
from ._dropout import Dropout
from ._linear import Linear
from ._precision import computable


class MultiheadAttention(ArrayModule):
    """`torch.nn.MultiheadAttention` for B models (Vaswani et al., 2017).

    `query` `[B, L, N, E]`, or `[B, N, L, E]` with `batch_first`; `key`, `value` likewise with S for L.
    `attn_mask`, shared by the models, is torch's `[L, S]` or `[N * H, L, S]`; `key_padding_mask` is `[B, N,
    S]`, True = ignore. Returns (output, weights), weights `[B, N, L, S]` or None. Self-attention without
    `attn_mask` and weights, the case of an encoder, is one fused operator on the packed projections.
    """

    torch_class = torch.nn.MultiheadAttention

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float | Sequence[float] = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        B: int,
    ) -> None:
        super().__init__(B)
        for name, value in (("add_bias_kv", add_bias_kv), ("add_zero_attn", add_zero_attn)):
            if value:
                raise InvalidArgument(f"MultiheadAttention(B={B}) has no {name}; keep this layer per model")
        if (kdim or embed_dim) != embed_dim or (vdim or embed_dim) != embed_dim:
            raise InvalidArgument(
                f"MultiheadAttention(B={B}) takes kdim = vdim = embed_dim = {embed_dim}, got {kdim} and {vdim}"
            )
        if num_heads <= 0 or embed_dim % num_heads:
            raise InvalidArgument(f"embed_dim={embed_dim} must be divisible by num_heads={num_heads}")
        self.embed_dim, self.num_heads, self.batch_first = embed_dim, num_heads, batch_first
        self.head_dim = embed_dim // num_heads
        self.attention_dropout = Dropout(dropout, B=B, device=device)
        where = {"device": device, "dtype": dtype}
        self.in_proj_weight = torch.nn.Parameter(torch.empty(B, 3 * embed_dim, embed_dim, **where))
        if bias:
            self.in_proj_bias = torch.nn.Parameter(torch.zeros(B, 3 * embed_dim, **where))
        else:
            self.register_parameter("in_proj_bias", None)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, B=B, **where)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Xavier-uniform input projections and zero biases, as torch's, model by model."""
        for index in range(self.B):
            torch.nn.init.xavier_uniform_(self.in_proj_weight[index])
        if self.in_proj_bias is not None:
            self.in_proj_bias.zero_()
            self.out_proj.bias.zero_()

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        arguments = {
            "embed_dim": module.embed_dim,
            "num_heads": module.num_heads,
            "dropout": module.attention_dropout.rates if isinstance(module, cls) else module.dropout,
            "bias": module.in_proj_bias is not None,
            "batch_first": module.batch_first,
        }
        if isinstance(module, torch.nn.MultiheadAttention):
            arguments |= {
                "add_bias_kv": module.bias_k is not None,
                "add_zero_attn": module.add_zero_attn,
                "kdim": module.kdim,
                "vdim": module.vdim,
            }
        return arguments

    @classmethod
    def per_model_arguments(cls) -> tuple[str, ...]:
        return ("dropout",)

    def attend(
        self, x: torch.Tensor, key_padding_mask: torch.Tensor | None = None, causal: bool = False
    ) -> torch.Tensor:
        """Self-attention before the output projection: x `[B, N, L, E]` to heads joined `[B, N, L, E]`."""
        qkv = ops.linear(x, self.in_proj_weight, self.in_proj_bias)
        p, rng = self.attention_dropout.draw()
        return ops.attention(computable(qkv), self.num_heads, p, rng, causal, key_padding_mask)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        key_padding_mask: torch.Tensor | None = None,
        need_weights: bool = True,
        attn_mask: torch.Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        check_models(query, self.B, "MultiheadAttention")
        same = query is key and key is value
        if not self.batch_first:
            query, key, value = (x.transpose(1, 2) for x in (query, key, value))
        if is_causal and attn_mask is None:
            raise InvalidArgument("is_causal=True is a hint and needs attn_mask, as in torch")
        boolean = key_padding_mask is None or key_padding_mask.dtype == torch.bool
        if same and boolean and not need_weights and (attn_mask is None or is_causal):
            output, weights = self.attend(query, key_padding_mask, causal=is_causal), None
        else:
            output, weights = self._compose(query, key, value, key_padding_mask, attn_mask)
            weights = (weights.mean(2) if average_attn_weights else weights) if need_weights else None
        output = self.out_proj(output)
        return (output if self.batch_first else output.transpose(1, 2)), weights

    def _compose(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        key_padding_mask: torch.Tensor | None,
        attn_mask: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The general case from torch's operators: (joined heads `[B, N, L, E]`, weights `[B, N, H, L, S]`)."""
        weights = self.in_proj_weight.chunk(3, dim=1)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3, dim=1)
        q, k, v = (
            ops.linear(x, w, b)
            .unflatten(-1, (self.num_heads, self.head_dim))
            .transpose(2, 3)  # [B, N, H, L, d]
            for x, w, b in zip((query, key, value), weights, biases, strict=True)
        )
        scores = (q * self.head_dim**-0.5) @ k.transpose(-2, -1)
        if attn_mask is not None:
            scores = scores + _additive(_per_head(attn_mask, self.num_heads), scores.dtype)
        if key_padding_mask is not None:
            scores = scores + _additive(key_padding_mask, scores.dtype)[:, :, None, None, :]
        probabilities = self.attention_dropout(scores.softmax(-1))
        return (probabilities @ v).transpose(2, 3).flatten(-2), probabilities


def _additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A boolean mask (True = ignore) as what is added to the scores; a float mask is that already."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, float("-inf"))


def _per_head(mask: torch.Tensor, num_heads: int) -> torch.Tensor:
    """`[L, S]` is shared by all; torch's `[N * H, L, S]` becomes `[N, H, L, S]`."""
    return mask if mask.dim() == 2 else mask.unflatten(0, (-1, num_heads))
