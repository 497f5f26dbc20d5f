# SPDX-License-Identifier: MIT
"""Multi-head attention of B models: its masks, its ways on a GPU, and the layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from .. import ops
from .._ways import Way, fastest
from ..errors import InvalidArgument
from ._dropout import Dropout
from ._linear import Linear
from ._models import computable
from ._parametric import Parametric
from .array_module import check_models
from .functional.attention import attend, attention_weights


def shape_for_heads(mask: Tensor, B: int, sequences: int, heads: int) -> Tensor:
    """Reshape a mask `[L, S]`, `[B, L, S]` or `[B, N * H, L, S]` so that it broadcasts to `[B, N, H, L, S]`."""
    if mask.dim() == 2:
        return mask[None, None, None]
    if mask.dim() == 3 and mask.shape[0] == B:
        return mask[:, None, None]
    if mask.dim() == 4 and mask.shape[:2] == (B, sequences * heads):
        return mask.unflatten(1, (sequences, heads))
    raise InvalidArgument(
        f"attn_mask of B={B} models is [L, S] (for all), [{B}, L, S] or [{B}, N * H = {sequences * heads}, L, S]; got "
        f"{list(mask.shape)}. A mask [N * H, L, S] that all models share is dnnsuite.stack(mask, B={B})"
    )


def joined_mask(mask: Tensor | None, padding: Tensor | None, extra: int, dtype: torch.dtype) -> Tensor | None:
    """Combine two masks, with `extra` keys at the end that are never ignored; boolean (True = ignore) if both are."""
    found = [m if extra == 0 else torch.nn.functional.pad(m, (0, extra)) for m in (mask, padding) if m is not None]
    if not found:
        return None
    if all(m.dtype == torch.bool for m in found):
        return found[0] if len(found) == 1 else found[0] | found[1]
    added = [additive(m, dtype) for m in found]
    return added[0] if len(added) == 1 else added[0] + added[1]


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a boolean mask (True = ignore) to one that is added to the scores; cast a float mask to `dtype`."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, float("-inf"))


def is_causal_mask(mask: Tensor | None) -> bool:
    """Return True if a mask for all models hides exactly the later positions; False where a look would wait for a
    GPU."""
    if mask is None or mask.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    if mask.dim() == 3 and mask.stride(0) == 0:
        mask = mask[0]
    if mask.dim() != 2 or mask.shape[0] != mask.shape[1] or mask.requires_grad:
        return False
    later = torch.ones(mask.shape, dtype=torch.bool).triu(1)
    return torch.equal(mask, later if mask.dtype == torch.bool else additive(later, mask.dtype))


def attend_packed(
    qkv: Tensor, num_heads: int, p: Tensor | None, rng: Tensor | None, causal: bool, key_padding_mask: Tensor | None
) -> Tensor:
    """Compute `ops.attention`; on a GPU by the fastest of several ways."""
    if not qkv.is_cuda:
        return ops.attention(qkv, num_heads, p, rng, causal, key_padding_mask)
    ways = attention_ways(num_heads, p, rng, causal, key_padding_mask)
    facts = num_heads, p is not None, causal, key_padding_mask is not None
    return ways[fastest("attention", ways, (qkv,), *facts)](qkv)


def attention_ways(
    num_heads: int, p: Tensor | None, rng: Tensor | None, causal: bool, key_padding_mask: Tensor | None
) -> dict[str, Way]:
    """Return the ways by name; each takes qkv `[B, N, L, 3E]`.

    With dropout torch's call is not among them: it would draw from the device's generator, not from each model's
    stream.
    """
    options = num_heads, p, rng, causal, key_padding_mask
    ways: dict[str, Way] = {
        "kernel": lambda qkv: ops.attention(qkv, *options),
        "products": lambda qkv: ops.attention_by_products(qkv, *options),
    }
    if p is None:
        ways["one call"] = lambda qkv: _in_one_call(qkv, num_heads, causal, key_padding_mask)
    return ways


def _in_one_call(qkv: Tensor, num_heads: int, causal: bool, key_padding_mask: Tensor | None) -> Tensor:
    models, sequences, length, width = qkv.shape
    packed = qkv.reshape(models * sequences, length, 3, num_heads, width // (3 * num_heads))
    query, key, value = packed.permute(2, 0, 3, 1, 4).unbind(0)
    if key_padding_mask is None:
        y = scaled_dot_product_attention(query, key, value, is_causal=causal)
    else:
        seen = ~key_padding_mask.reshape(models * sequences, 1, 1, length)
        if causal:
            seen = seen & torch.ones(length, length, dtype=torch.bool, device=qkv.device).tril()
        y = scaled_dot_product_attention(query, key, value, attn_mask=seen)
        # What a token gets that sees none is not the same in all of torch's kernels: NaN, as in the other ways.
        blind = ~seen.any(-1, keepdim=True)
        y = y * torch.ones_like(blind, dtype=y.dtype).masked_fill_(blind, torch.nan)
    return y.transpose(1, 2).reshape(models, sequences, length, width // 3)


class MultiheadAttention(Parametric):
    """`torch.nn.MultiheadAttention` for B models (Vaswani et al., 2017).

    `query` is `[B, L, N, E]`, or `[B, N, L, E]` with `batch_first`, or `[B, L, E]` for one sequence; `key` and `value`
    have the same shape with S in place of L. `attn_mask` is `[L, S]` (for all models), `[B, L, S]` or
    `[B, N * H, L, S]`; `key_padding_mask` is `[B, N, S]`. A boolean mask is True where a key is ignored; a float mask
    is added to the scores. Returns (output, weights); the weights are `[B, N, L, S]` or None. Self-attention that
    returns no weights, and whose only masks are for padding and causality, is one fused operator on the packed
    projections. Most models are of this kind.
    """

    per_model_arguments = ("dropout",)
    arguments = ("embed_dim", "num_heads", "add_zero_attn", "kdim", "vdim", "batch_first")

    in_proj_weight: Tensor | None
    compute_dtype: torch.dtype | None = None  # of the projections, if not that of the parameters: `nn.compute_dtype`
    in_proj_bias: Tensor | None
    q_proj_weight: Tensor
    k_proj_weight: Tensor
    v_proj_weight: Tensor
    bias_k: Tensor | None
    bias_v: Tensor | None

    def _take(self, plain: Any, device: Any) -> None:
        self.attention_dropout = Dropout(plain.dropout, B=self.B, device=device)
        super()._take(plain, device)
        for name in {"bias_k", "bias_v"} - self._parameters.keys():
            self.register_parameter(name, None)
        self.head_dim, out = plain.head_dim, plain.out_proj
        self.out_proj = Linear(self.embed_dim, self.embed_dim, out.bias is not None, device, out.weight.dtype, B=self.B)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise projections with Xavier's rule and biases with zeros, model by model, as torch does."""
        for index in range(self.B):
            for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
                if (weight := self._parameters[name]) is not None:
                    torch.nn.init.xavier_uniform_(weight[index])
            for extra in (self.bias_k, self.bias_v):
                if extra is not None:
                    torch.nn.init.xavier_normal_(extra[index])
        if self.in_proj_bias is not None:
            self.in_proj_bias.zero_()
            self.out_proj.bias.zero_()

    @property
    def dropout(self) -> Any:
        """Dropout rate: one number, or a list if the models differ. You can assign a number, a list or a tensor."""
        return self.attention_dropout.one_or_all_rates()

    @dropout.setter
    def dropout(self, value: Any) -> None:
        self.attention_dropout.p = value

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        return super().arguments_of(module) | {
            "dropout": module.attention_dropout.rates if isinstance(module, cls) else module.dropout,
            "bias": module.in_proj_bias is not None,
            "add_bias_kv": module.bias_k is not None,
        }

    def heads(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Compute all heads, without the output projection: `[B, N, L, E]` and `[B, N, S, ...]` to `[B, N, L, E]`.

        `is_causal` applies the causal mask; an `attn_mask` given with it must be that same mask.
        """
        plain = self.bias_k is None and not self.add_zero_attn
        boolean = key_padding_mask is None or key_padding_mask.dtype == torch.bool
        same = query is key and key is value and (attn_mask is None or is_causal)
        short = query.shape[2] <= ops.LONGEST_ATTENTION
        if self.in_proj_weight is not None and plain and boolean and same and short:
            qkv = self._product(query, self.in_proj_weight, self.in_proj_bias)
            p, rng = self.attention_dropout.draw()
            return attend_packed(computable(qkv), self.num_heads, p, rng, is_causal, key_padding_mask)
        if is_causal and attn_mask is None:
            attn_mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).triu(1)
        is_causal = is_causal and key_padding_mask is None
        if is_causal:
            attn_mask = None
        q, k, v, mask = self._prepared(query, key, value, key_padding_mask, attn_mask)
        p, rng = self.attention_dropout.draw()
        return attend(q, k, v, mask, is_causal, None, p, rng).transpose(2, 3).flatten(-2)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        check_models(query, self.B, "MultiheadAttention")
        if is_causal and attn_mask is None:
            raise InvalidArgument("is_causal=True is a hint and needs attn_mask, as in torch")
        single = query.dim() == 3
        at = 1 if self.batch_first else 2
        same = query is key and key is value
        query, key, value = (
            x if self.batch_first else x.transpose(1, 2)
            for x in (x.unsqueeze(at) if single else x for x in (query, key, value))
        )
        if same:
            key = value = query
        if single and key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(1)
        weights = None
        if need_weights:
            q, k, v, mask = self._prepared(query, key, value, key_padding_mask, attn_mask)
            weights = self.attention_dropout(attention_weights(q, k, mask)).to(q.dtype)
            output = ops.matmul(weights, v).transpose(2, 3).flatten(-2)
            weights = weights.mean(2) if average_attn_weights else weights
        else:
            output = self.heads(query, key, value, key_padding_mask, attn_mask, is_causal)
        output = self.out_proj(output.to(query.dtype))
        output = output if self.batch_first else output.transpose(1, 2)
        if single:
            return output.squeeze(at), None if weights is None else weights.squeeze(1)
        return output, weights

    def _prepared(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None, attn_mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return projected q, k, v `[B, N, H, L or S, d]` with the constant keys (`add_bias_kv`, `add_zero_attn`), and
        one mask."""
        q, k, v = self._projected(query, key, value)
        mask = None if attn_mask is None else shape_for_heads(attn_mask, self.B, q.shape[1], self.num_heads)
        if self.bias_k is not None and self.bias_v is not None:
            k, v = (
                torch.cat([x, extra.expand(-1, x.shape[1], 1, -1)], 2)
                for x, extra in ((k, self.bias_k), (v, self.bias_v))
            )
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).transpose(2, 3) for x in (q, k, v))
        if self.add_zero_attn:
            k, v = (torch.nn.functional.pad(x, (0, 0, 0, 1)) for x in (k, v))
        padding = None if key_padding_mask is None else key_padding_mask[:, :, None, None, :]
        return q, k, v, joined_mask(mask, padding, k.shape[3] - key.shape[2], q.dtype)

    def _product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        y = ops.linear(x, weight, bias, dtype=self.compute_dtype)
        return y if self.compute_dtype is None else y.to(x.dtype)

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Project to q, k, v `[B, N, L or S, E]`; projections of one input are one product."""
        bias, E = self.in_proj_bias, self.embed_dim
        if self.in_proj_weight is None:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            biases = (None,) * 3 if bias is None else bias.chunk(3, 1)
            return tuple(self._product(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
        if query is key and key is value:
            return self._product(query, self.in_proj_weight, bias).chunk(3, -1)
        parts = [E, 2 * E] if key is value else [E, E, E]
        weights = self.in_proj_weight.split(parts, 1)
        biases = (None,) * 3 if bias is None else bias.split(parts, 1)
        q = self._product(query, weights[0], biases[0])
        if key is value:
            return q, *self._product(key, weights[1], biases[1]).chunk(2, -1)
        return q, self._product(key, weights[1], biases[1]), self._product(value, weights[2], biases[2])
