# SPDX-License-Identifier: MIT
"""A decoder of today: RMS norms, rotary positions, grouped queries, gated feed-forward; and the bytes it learns.

The text is FineWeb's shards of tokens under `dataroot` (`*.bin`: a head of 256 int32, then uint16), else the pages on
the language that come with the interpreter, as bytes. The last tenth is held out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from ..._lazy import numpy as np
from ..._seeds import seed_all
from ...data.batches import ArrayBatches, WholeBatch
from ...errors import BadData, InvalidArgument
from .._job import JobConfig
from ..declared_job import widened
from ..workload import Loss, Rate, Values

_HEAD = 256  # int32 before the tokens of a shard
_HELD_OUT = 32  # windows
SIZES = {"layers": 2, "width": 96, "heads": 4, "kv_heads": 2, "ff": 256, "vocab": 256, "length": 128}


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


class Block(nn.Module):
    """A mixer of positions and a feed-forward, each on the normalised stream and added to it."""

    def __init__(self, width: int, mixer: nn.Module, forward: nn.Module) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(width, eps=1e-6) for _ in range(2))
        self.mixer, self.ff = mixer, forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.mixer(self.norms[0](x))
        return x + self.ff(self.norms[1](x))


class Decoder(nn.Module):
    """Tokens `[N, L]` → logits of the next ones `[N, L, vocab]`; the embedding is the head, too.

    Args:
        options: SIZES; with `again`, a block is computed again in the backward pass, instead of kept.
        block: makes a block; by default one of attention and a gated feed-forward.
    """

    def __init__(self, options: Values, block: Callable[[], nn.Module] | None = None) -> None:
        super().__init__()
        width = options["width"]
        if width % options["heads"] or options["heads"] % options["kv_heads"]:
            raise InvalidArgument(
                f"heads {options['heads']} must divide width {width}, and kv_heads {options['kv_heads']} the heads"
            )
        make = block or (
            lambda: Block(width, Attention(width, options["heads"], options["kv_heads"]), Gated(width, options["ff"]))
        )
        self.embedding = nn.Embedding(options["vocab"], width)
        self.blocks = nn.ModuleList(make() for _ in range(options["layers"]))
        self.again = bool(options.get("again"))
        self.norm = nn.RMSNorm(width, eps=1e-6)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)  # logits of variance 1

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return F.linear(self.norm(x), self.embedding.weight)


def flops_per_token(options: Values) -> float:
    """Six for each weight that multiplies, and attention's products, forward and backward (Kaplan et al., 2020)."""
    width, ff = options["width"], options["ff"]
    shared = 2 * width * width * (1 + options["kv_heads"] / options["heads"])
    weights = options["layers"] * (shared + 3 * width * ff) + options["vocab"] * width
    return 6.0 * weights + attention_flops(options)


def attention_flops(options: Values) -> float:
    """Products of queries, keys and values of a token, which sees half of the others."""
    return 6.0 * options["layers"] * options["width"] * options["length"]


def text(config: JobConfig, options: Values) -> ArrayBatches:
    """Windows of tokens `[N, L]` and the tokens after each of them."""
    tokens, record = tokens_of(config, options["vocab"])
    return windows(tokens[: len(tokens) * 9 // 10], record, config, options["length"])


def held_out_text(config: JobConfig, options: Values) -> WholeBatch:
    """Windows of the last tenth, evenly spread."""
    tokens, record = tokens_of(config, options["vocab"])
    return held_out_windows(tokens[len(tokens) * 9 // 10 :], record, options["length"])


def windows(tokens: torch.Tensor, record: Values, config: JobConfig, length: int) -> ArrayBatches:
    """Windows that begin anywhere in `tokens`."""
    if len(tokens) < 3 * length:
        raise InvalidArgument(f"length {length}: the text has {len(tokens)} tokens to train on, too few")
    steps = torch.arange(length + 1)

    def prepare(generator: torch.Generator, starts: torch.Tensor) -> tuple[torch.Tensor, ...]:
        moved = starts + torch.randint(length, starts.shape, generator=generator)
        rows = tokens[moved[:, None] + steps].long()
        return rows[:, :-1], rows[:, 1:]

    starts = torch.arange(0, len(tokens) - 2 * length, length)
    return ArrayBatches(starts, batch_size=config.batch_size, seed=config.data_seed, record=record, prepare=prepare)


def held_out_windows(tokens: torch.Tensor, record: Values, length: int) -> WholeBatch:
    starts = torch.linspace(0, len(tokens) - length - 1, _HELD_OUT).long()
    rows = tokens[starts[:, None] + torch.arange(length + 1)].long()
    return WholeBatch((rows[:, :-1], rows[:, 1:]), record)


def tokens_of(config: JobConfig, vocab: int) -> tuple[torch.Tensor, dict[str, Any]]:
    """Return all tokens, and where they come from."""
    shards = [] if config.data == "synthetic" or not config.dataroot else sorted(Path(config.dataroot).glob("*.bin"))
    if shards:
        return _shard(shards[0], vocab), {"source": f"{shards[0].name}: tokens of the user's", "licence": "the user's"}
    return _pages()


def _shard(path: Path, vocab: int) -> torch.Tensor:
    size = path.stat().st_size - 4 * _HEAD
    if size < 2 or size % 2:
        raise BadData(f"{path} is not a shard of tokens, which is a head of {_HEAD} int32 and uint16 after it")
    tokens = np.fromfile(path, np.uint16, offset=4 * _HEAD).astype(np.int32)
    if tokens.max() >= vocab:
        raise BadData(f"{path} has the token {tokens.max()}: set vocab to {tokens.max() + 1} or more")
    return torch.from_numpy(tokens)


@lru_cache(maxsize=1)
def _pages() -> tuple[torch.Tensor, dict[str, Any]]:
    import hashlib
    from pydoc_data.topics import topics

    # Pages quote each other: a paragraph is taken once, lest one that is held out is learned from another page.
    paragraphs = dict.fromkeys("\n\n".join(topics[name] for name in sorted(topics)).split("\n\n"))
    whole = "\n\n".join(paragraphs).encode()
    record = {"source": "CPython's pages on the language, as bytes", "licence": "PSF-2.0"}
    tokens = torch.frombuffer(bytearray(whole), dtype=torch.uint8)
    return tokens, {**record, "sha256": hashlib.sha256(whole).hexdigest()}


def loss(model: Any, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the next token."""
    return F.cross_entropy(widened(model(tokens)).flatten(0, 1), following.flatten())


def bits(model: Any, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """Bits per token, which is a byte where tokens are bytes."""
    return loss(model, tokens, following) / math.log(2)


def taught(
    options: Values, batch: Callable[[int], tuple[torch.Tensor, ...]], loss: Loss, steps: int, seed: int, lr: float,
    rate: Rate | None = None,
) -> dict[str, torch.Tensor]:  # fmt: skip
    """Weights of a decoder that learned some batches: the same, whichever model begins with them."""
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        seed_all(seed)
        decoder = Decoder(options)
        optimizer = torch.optim.AdamW(decoder.parameters(), lr=lr, weight_decay=0.0)
        for i in range(steps):
            optimizer.param_groups[0]["lr"] = lr * (rate(i, steps) if rate else 1.0)
            optimizer.zero_grad(set_to_none=True)
            loss(decoder, *batch(i)).backward()
            optimizer.step()
    return {name: value.detach() for name, value in decoder.state_dict().items()}


# What all workloads that learn text have in common.
OF_TEXT: dict[str, Any] = {
    "unit": "tokens", "data": text, "held_out": held_out_text, "clip_norm": 1.0,
    "items_per_sample": lambda options: options["length"],
}  # fmt: skip
