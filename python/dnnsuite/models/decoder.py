# SPDX-License-Identifier: MIT
"""A decoder of today: RMS norms, rotary positions, grouped queries, gated feed-forward; adapters of low rank; and its
blocks as state spaces in Mamba-2's matrix form, with products inside chunks and a state handed on between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from ..errors import InvalidArgument


class Attention(nn.Module):
    """Causal attention of `heads` queries over `kv_heads` keys and values."""

    def __init__(self, width: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, kv_heads * self.size, bias=False)
        self.value = nn.Linear(width, kv_heads * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, length, _ = x.shape
        query = self.query(x).view(n, length, self.heads, self.size).transpose(1, 2)
        key, value = (
            part.view(n, length, self.kv_heads, self.size).transpose(1, 2) for part in (self.key(x), self.value(x))
        )
        each = self.heads // self.kv_heads
        key, value = (part.repeat_interleave(each, 1) for part in (_rotated(key), value))
        mixed = F.scaled_dot_product_attention(_rotated(query), key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(n, length, -1))


def _rotated(x: torch.Tensor) -> torch.Tensor:
    """Turn pairs of features by angles that grow with the position."""
    half = x.shape[-1] // 2
    rates = 10_000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)[:, None] * rates
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


class Gated(nn.Module):
    """Feed-forward with a SiLU gate."""

    def __init__(self, width: int, ff: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, ff, bias=False), nn.Linear(width, ff, bias=False)
        self.down = nn.Linear(ff, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Added(nn.Module):
    """Residual connection: the input plus the outputs of a part for the normalised input."""

    def __init__(self, width: int, part: nn.Module) -> None:
        super().__init__()
        self.norm, self.part = nn.RMSNorm(width, eps=1e-6), part

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.part(self.norm(x))


def attending(options: Mapping[str, Any]) -> nn.Sequential:
    """A block of attention and a gated feed-forward."""
    width = options["width"]
    attention = Attention(width, options["heads"], options["kv_heads"])
    return nn.Sequential(Added(width, attention), Added(width, Gated(width, options["ff"])))


class Decoder(nn.Module):
    """Map tokens `[N, L]` to logits of the next token `[N, L, vocab]`; the head shares the weight of the embedding.

    Args:
        options: vocab, layers, width, heads, kv_heads and ff; with `again`, a block is computed again in the backward
            pass, instead of kept.
        block: makes a block; by default one of attention and a gated feed-forward.
    """

    def __init__(self, options: Mapping[str, Any], block: Callable[[], nn.Module] | None = None) -> None:
        super().__init__()
        width = options["width"]
        if width % options["heads"] or options["heads"] % options["kv_heads"]:
            raise InvalidArgument(
                f"heads {options['heads']} must divide width {width}, and kv_heads {options['kv_heads']} the heads"
            )
        self.embedding = nn.Embedding(options["vocab"], width)
        self.blocks = nn.ModuleList(block() if block else attending(options) for _ in range(options["layers"]))
        self.again = bool(options.get("again"))
        self.norm = nn.RMSNorm(width, eps=1e-6)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)  # logits of variance 1

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return F.linear(self.norm(x), self.embedding.weight)


class Adapted(nn.Module):
    """A frozen linear layer plus a trained product of rank `rank`, which is zero at first."""

    def __init__(self, base: nn.Linear, rank: int, scale: float) -> None:
        super().__init__()
        self.base, self.scale = base, scale
        self.down = nn.Parameter(torch.randn(rank, base.in_features) * base.in_features**-0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + F.linear(F.linear(x, self.down), self.up) * self.scale


def adapt(decoder: nn.Module, rank: int, scale: float) -> nn.Module:
    """Freeze a decoder, put adapters on its queries, values, outputs and feed-forward layers, and return it."""
    decoder.requires_grad_(False)
    for holder in list(decoder.modules()):
        for name, part in list(holder.named_children()):
            if isinstance(part, nn.Linear) and name != "key":
                setattr(holder, name, Adapted(part, rank, scale))
    return decoder


class StateSpace(nn.Module):
    """h_t = exp(-a dt_t) h_(t-1) + dt_t B_t x_t, y_t = C_t h_t + D x_t for each head, after a short convolution."""

    def __init__(self, width: int, head: int, state: int, chunk: int) -> None:
        super().__init__()
        self.inner, self.state, self.chunk = 2 * width, state, chunk
        self.heads, self.head = self.inner // head, head
        mixed = self.inner + 2 * state
        self.enter = nn.Linear(width, self.inner + mixed + self.heads, bias=False)
        self.local = nn.Conv1d(mixed, mixed, 4, padding=3, groups=mixed)
        self.step = nn.Parameter(torch.linspace(-4.0, 0.0, self.heads))
        self.decay = nn.Parameter(torch.linspace(1.0, 8.0, self.heads).log())
        self.skip = nn.Parameter(torch.ones(self.heads))
        self.norm = nn.RMSNorm(self.inner, eps=1e-6)
        self.leave = nn.Linear(self.inner, width, bias=False)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        n, length, _ = u.shape
        if length % self.chunk:
            raise InvalidArgument(f"length {length} is not a multiple of the chunk {self.chunk}")
        gate, x, dt = self.enter(u).split([self.inner, self.inner + 2 * self.state, self.heads], -1)
        x = F.silu(self.local(x.transpose(1, 2))[..., :length].transpose(1, 2))
        x, enters, leaves = x.split([self.inner, self.state, self.state], -1)
        x = x.reshape(n, length, self.heads, self.head)
        dt = F.softplus(dt + self.step)
        mixed = self._scan(x * dt[..., None], -dt * self.decay.exp(), enters, leaves)
        mixed = (mixed + x * self.skip[:, None]).reshape(n, length, self.inner)
        return self.leave(self.norm(mixed * F.silu(gate)))

    def _scan(self, x: Any, log_decay: Any, enters: Any, leaves: Any) -> torch.Tensor:
        """Outputs `[N, L, H, E]` of inputs x `[N, L, H, E]`, decays `[N, L, H]` and vectors `[N, L, S]`."""
        n, length, _, _ = x.shape
        chunks = length // self.chunk
        x = x.view(n, chunks, self.chunk, self.heads, self.head).transpose(2, 3)  # [N, K, H, c, E]
        total = log_decay.view(n, chunks, self.chunk, self.heads).transpose(2, 3).cumsum(-1)  # [N, K, H, c]
        enters, leaves = (part.reshape(n, chunks, 1, self.chunk, self.state) for part in (enters, leaves))
        later = torch.ones(self.chunk, self.chunk, dtype=torch.bool, device=x.device).triu(1)
        between = (total[..., :, None] - total[..., None, :]).masked_fill(later, float("-inf")).exp()
        inside = ((leaves @ enters.transpose(-1, -2)) * between) @ x
        made = enters.transpose(-1, -2) @ ((total[..., -1:] - total).exp()[..., None] * x)  # [N, K, H, S, E]
        keeps = total[..., -1].exp()[..., None, None]
        state, before = torch.zeros_like(made[:, 0]), []
        for k in range(chunks):
            before.append(state)
            state = state * keeps[:, k] + made[:, k]
        carried = (leaves @ torch.stack(before, 1)) * total.exp()[..., None]
        return (inside + carried).transpose(2, 3).reshape(n, length, self.heads, self.head)
