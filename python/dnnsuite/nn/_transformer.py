# SPDX-License-Identifier: MIT
"""Transformer encoder layers of B models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import ops
from ..errors import InvalidArgument
from ._attention import MultiheadAttention
from ._base import ArrayModule, check_models
from ._dropout import Dropout
from ._linear import Linear
from ._normalization import LayerNorm
from ._precision import computable, match

Activation = str | Callable[[torch.Tensor], torch.Tensor]


class TransformerEncoderLayer(ArrayModule):
    """`torch.nn.TransformerEncoderLayer` for B models: `[B, L, N, E]`, or `[B, N, L, E]` with `batch_first`.

    Between its matrix products everything is fused: bias, dropout, residual and norm are one operator, bias, activation
    and dropout another, and both give their bias gradients in the same pass. The first model's `src_mask` holds for all
    (`[L, L]`); `src_key_padding_mask` is `[B, N, L]`.
    """

    torch_class = torch.nn.TransformerEncoderLayer

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float | Sequence[float] = 0.1,
        activation: Activation = torch.nn.functional.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        B: int,
    ) -> None:
        super().__init__(B)
        where = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout, bias=bias, batch_first=batch_first, B=B, **where
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, B=B, **where)
        self.dropout = Dropout(dropout, B=B, device=device)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, B=B, **where)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, B=B, **where)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, B=B, **where)
        self.dropout1 = Dropout(dropout, B=B, device=device)
        self.dropout2 = Dropout(dropout, B=B, device=device)
        self.activation = _activation(activation)

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        return {
            "d_model": module.self_attn.embed_dim,
            "nhead": module.self_attn.num_heads,
            "dim_feedforward": module.linear1.out_features,
            "dropout": module.dropout.rates if isinstance(module, cls) else module.dropout.p,
            "activation": module.activation,
            "layer_norm_eps": module.norm1.eps,
            "batch_first": module.self_attn.batch_first,
            "norm_first": module.norm_first,
            "bias": module.linear1.bias is not None,
        }

    @classmethod
    def per_model_arguments(cls) -> tuple[str, ...]:
        return ("dropout",)

    @classmethod
    def from_models(cls, models: Sequence[torch.nn.Module]) -> TransformerEncoderLayer:
        """As every layer; refuses layers whose parts were exchanged or given rates of their own by hand."""
        for index, model in enumerate(models):
            layer: Any = model
            if not layer.dropout.p == layer.dropout1.p == layer.dropout2.p == layer.self_attn.dropout:
                raise InvalidArgument(
                    f"model {index}: the four dropout rates of one TransformerEncoderLayer differ"
                )
        return super().from_models(models)

    def forward(
        self,
        src: torch.Tensor,
        src_mask: torch.Tensor | None = None,
        src_key_padding_mask: torch.Tensor | None = None,
        is_causal: bool = False,
    ) -> torch.Tensor:
        check_models(src, self.B, "TransformerEncoderLayer")
        x = src if self.self_attn.batch_first else src.transpose(1, 2)
        if self.norm_first:
            attended = self._attend(self.norm1(x), src_mask, src_key_padding_mask, is_causal)
            x = self._add(attended, self.self_attn.out_proj, x, self.dropout1)
            x = self._add(self._feed_forward(self.norm2(x)), self.linear2, x, self.dropout2)
        else:
            attended = self._attend(x, src_mask, src_key_padding_mask, is_causal)
            x = self._join(attended, self.self_attn.out_proj, x, self.dropout1, self.norm1)
            x = self._join(self._feed_forward(x), self.linear2, x, self.dropout2, self.norm2)
        return x if self.self_attn.batch_first else x.transpose(1, 2)

    def _add(self, x: torch.Tensor, linear: Linear, residual: torch.Tensor, dropout: Dropout) -> torch.Tensor:
        """residual + dropout(x + bias of `linear`)."""
        residual = computable(residual)
        return ops.bias_dropout_add(
            match(x, residual), match(linear.bias, residual), residual, *dropout.draw()
        )

    def _join(
        self, x: torch.Tensor, linear: Linear, residual: torch.Tensor, dropout: Dropout, norm: LayerNorm
    ) -> torch.Tensor:
        """norm(residual + dropout(x + bias of `linear`))."""
        x, residual = match(x, norm.weight), match(residual, norm.weight)
        return ops.bias_dropout_add_layer_norm(
            x, linear.bias, residual, *dropout.draw(), norm.weight, norm.bias, norm.eps
        )

    def _attend(
        self,
        x: torch.Tensor,
        mask: torch.Tensor | None,
        key_padding_mask: torch.Tensor | None,
        is_causal: bool,
    ) -> torch.Tensor:
        """Self-attention of x `[B, N, L, E]` with its output projection, whose bias is left to what follows."""
        attention = self.self_attn
        boolean = key_padding_mask is None or key_padding_mask.dtype == torch.bool
        if boolean and (mask is None or is_causal):
            joined = attention.attend(x, key_padding_mask, causal=is_causal)
        else:
            joined, _ = attention._compose(x, x, x, key_padding_mask, mask)
        return ops.linear(joined, attention.out_proj.weight, None)

    def _feed_forward(self, x: torch.Tensor) -> torch.Tensor:
        """linear2(dropout(activation(linear1(x)))) without linear2's bias."""
        hidden = computable(ops.linear(x, self.linear1.weight, None))
        bias = match(self.linear1.bias, hidden)
        if isinstance(self.activation, str):
            hidden = ops.bias_act_dropout(hidden, bias, self.activation, *self.dropout.draw())
        else:
            hidden = hidden if bias is None else hidden + bias[:, None, None, :]
            hidden = self.dropout(self.activation(hidden))
        return ops.linear(hidden, self.linear2.weight, None)


def _activation(activation: Activation) -> Activation:
    """The name of an activation that the fused operator knows, else the callable."""
    functional = torch.nn.functional
    if activation in ("relu", functional.relu) or isinstance(activation, torch.nn.ReLU):
        return "relu"
    if activation in ("gelu", functional.gelu) or (
        isinstance(activation, torch.nn.GELU) and activation.approximate == "none"
    ):
        return "gelu"
    if isinstance(activation, str):
        raise InvalidArgument(f"activation must be 'relu', 'gelu' or a callable, got {activation!r}")
    return activation
