# SPDX-License-Identifier: MIT
"""Transformer encoder and decoder layers of B models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import ops
from ..errors import InvalidArgument
from ..ops.shared import Maybe
from ._attention import MultiheadAttention
from ._dropout import Dropout
from ._linear import Linear
from ._models import computable, match, widened
from ._normalization import LayerNorm
from ._parametric import Parametric, signature_of
from .array_module import ArrayModule, check_models

Tensor = torch.Tensor
Activation = str | Callable[[Tensor], Tensor]
_PARTS: dict[Any, Any] = {
    torch.nn.MultiheadAttention: MultiheadAttention,
    torch.nn.Linear: Linear,
    torch.nn.LayerNorm: LayerNorm,
    torch.nn.Dropout: Dropout,
}


class TransformerLayer(Parametric):
    """Base of encoder and decoder layers, with the parts that torch's have.

    The work between matrix products is fused: bias, dropout, residual and norm are one operator; bias, activation and
    dropout are another. Both compute the gradients of biases in the same pass.
    """

    per_model_arguments = ("dropout",)
    _drops: tuple[str, ...]  # the dropout layers outside attention
    _attentions: tuple[str, ...]
    self_attn: MultiheadAttention
    norm1: LayerNorm
    norm2: LayerNorm
    dropout1: Dropout
    dropout2: Dropout

    def __init__(self, *args: Any, B: int, **kwargs: Any) -> None:
        ArrayModule.__init__(self, B)
        given = signature_of(type(self).torch_class).bind(*args, **kwargs).arguments
        rates, device = given.pop("dropout", 0.1), given.pop("device", None)
        self.activation = _activation(given.pop("activation", "relu"))
        plain = self._of_torch(**given)
        self.norm_first = plain.norm_first
        for name, part in plain._modules.items():
            kind = _PARTS[type(part)]
            arguments = kind.arguments_of(part) | dict.fromkeys(kind.per_model_arguments, rates)
            first = next(part.parameters(), None)
            dtype = {} if first is None else {"dtype": first.dtype}
            self.add_module(name, kind(**arguments, device=device, B=B, **dtype))

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        return {
            "d_model": module.self_attn.embed_dim,
            "nhead": module.self_attn.num_heads,
            "dim_feedforward": module.linear1.out_features,
            "dropout": module.dropout.rates if isinstance(module, cls) else module.dropout.p,
            "activation": _activation(module.activation),
            "layer_norm_eps": module.norm1.eps,
            "batch_first": module.self_attn.batch_first,
            "norm_first": module.norm_first,
            "bias": module.linear1.bias is not None,
        }

    @classmethod
    def from_models(cls, models: Sequence[torch.nn.Module]) -> Any:
        """Build the array from plain layers. Layers with replaced parts or changed rates are refused."""
        for index, model in enumerate(models):
            rates = {getattr(model, name).p for name in cls._drops}
            rates |= {getattr(model, name).dropout for name in cls._attentions}
            if len(rates) > 1:
                raise InvalidArgument(f"model {index}: the dropout rates of one {cls.__name__} differ: {sorted(rates)}")
        return super().from_models(models)

    def _inner(self, x: Tensor, masks: Sequence[Tensor | None]) -> tuple[Tensor, bool, list[Tensor | None]]:
        """Return x as `[B, N, L, E]`, True if it was a single sequence, and padding masks `[B, N, S]` for it."""
        check_models(x, self.B, type(self).__name__)
        single = x.dim() == 3
        if single:
            x = x.unsqueeze(1)
        elif not self.self_attn.batch_first:
            x = x.transpose(1, 2)
        return x, single, [m if m is None or not single else m.unsqueeze(1) for m in masks]

    def _outer(self, x: Tensor, single: bool) -> Tensor:
        """Undo `_inner`."""
        if single:
            return x.squeeze(1)
        return x if self.self_attn.batch_first else x.transpose(1, 2)

    def _add(self, x: Tensor, linear: Linear, residual: Tensor, dropout: Dropout) -> Tensor:
        """Compute residual + dropout(x + bias of `linear`)."""
        x = widened(computable(x), residual)
        bias = match(linear.bias, x)
        return ops.bias_dropout_add(x, bias, match(residual, x), *dropout.draw()).to(residual.dtype)

    def _join(self, x: Tensor, linear: Linear, residual: Tensor, dropout: Dropout, norm: LayerNorm) -> Tensor:
        """Compute norm(residual + dropout(x + bias of `linear`))."""
        x = widened(computable(x), residual, norm.weight)
        parameters = (match(linear.bias, x), match(residual, x), *dropout.draw())
        y = ops.bias_dropout_add_layer_norm(x, *parameters, match(norm.weight, x), match(norm.bias, x), norm.eps)
        return y.to(residual.dtype) if y.device.type == "cpu" else y  # as torch's layer_norm under autocast

    def _attend(
        self, attention: Any, x: Tensor, memory: Tensor, mask: Maybe, key_padding_mask: Maybe, is_causal: bool
    ) -> Tensor:
        """Attend from x `[B, N, L, E]` to `memory`, with the output projection but without its bias, which the next
        operator adds."""
        joined = attention.heads(x, memory, memory, key_padding_mask, mask, is_causal)
        output = attention.out_proj
        return ops.linear(joined.to(x.dtype), output.weight, None, dtype=output.compute_dtype)

    def _feed_forward(self, x: Tensor) -> Tensor:
        """Compute linear2(dropout(activation(linear1(x)))) without linear2's bias."""
        product = ops.linear(x, self.linear1.weight, None, dtype=self.linear1.compute_dtype)
        hidden = computable(product)
        bias = match(self.linear1.bias, hidden)
        if isinstance(self.activation, str):
            hidden = ops.bias_act_dropout(hidden, bias, self.activation, *self.dropout.draw())
        else:
            hidden = hidden if bias is None else hidden + bias[:, None, None, :]
            hidden = self.dropout(self.activation(hidden))
        hidden = hidden.to(product.dtype if self.linear1.compute_dtype is None else x.dtype)
        return ops.linear(hidden, self.linear2.weight, None, dtype=self.linear2.compute_dtype)


class TransformerEncoderLayer(TransformerLayer):
    """`torch.nn.TransformerEncoderLayer` for B models: `[B, L, N, E]`, or `[B, N, L, E]` with `batch_first`.

    `src_mask` is `[L, L]` for all models, `[B, L, L]` or `[B, N * H, L, L]`; `src_key_padding_mask` is `[B, N, L]`. A
    single sequence without a batch is `[B, L, E]`.
    """

    _drops = ("dropout", "dropout1", "dropout2")
    _attentions = ("self_attn",)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        x, single, (padding,) = self._inner(src, [src_key_padding_mask])
        attention = self.self_attn
        if self.norm_first:
            inner = self.norm1(x)
            attended = self._attend(attention, inner, inner, src_mask, padding, is_causal)
            x = self._add(attended, attention.out_proj, x, self.dropout1)
            x = self._add(self._feed_forward(self.norm2(x)), self.linear2, x, self.dropout2)
        else:
            attended = self._attend(attention, x, x, src_mask, padding, is_causal)
            x = self._join(attended, attention.out_proj, x, self.dropout1, self.norm1)
            x = self._join(self._feed_forward(x), self.linear2, x, self.dropout2, self.norm2)
        return self._outer(x, single)


class TransformerDecoderLayer(TransformerLayer):
    """`torch.nn.TransformerDecoderLayer` for B models: `[B, L, N, E]` and the encoder's `[B, S, N, E]` (`batch_first`:
    N before L and S; without a batch: no N) to `[B, L, N, E]`. Masks are as in `MultiheadAttention`."""

    _drops = ("dropout", "dropout1", "dropout2", "dropout3")
    _attentions = ("self_attn", "multihead_attn")
    multihead_attn: MultiheadAttention
    norm3: LayerNorm
    dropout3: Dropout

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        x, single, (own, theirs) = self._inner(tgt, [tgt_key_padding_mask, memory_key_padding_mask])
        memory, _, _ = self._inner(memory, [])
        first, second = self.self_attn, self.multihead_attn
        to_self = (tgt_mask, own, tgt_is_causal)
        to_memory = (memory_mask, theirs, memory_is_causal)
        if self.norm_first:
            inner = self.norm1(x)
            x = self._add(self._attend(first, inner, inner, *to_self), first.out_proj, x, self.dropout1)
            attended = self._attend(second, self.norm2(x), memory, *to_memory)
            x = self._add(attended, second.out_proj, x, self.dropout2)
            x = self._add(self._feed_forward(self.norm3(x)), self.linear2, x, self.dropout3)
        else:
            x = self._join(self._attend(first, x, x, *to_self), first.out_proj, x, self.dropout1, self.norm1)
            attended = self._attend(second, x, memory, *to_memory)
            x = self._join(attended, second.out_proj, x, self.dropout2, self.norm2)
            x = self._join(self._feed_forward(x), self.linear2, x, self.dropout3, self.norm3)
        return self._outer(x, single)


def _activation(activation: Activation) -> Activation:
    """Return the name of an activation that the fused operator supports, else the callable."""
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
