# SPDX-License-Identifier: MIT
"""Parts of the jobs that train a decoder: text, loss, operations, and weights that know something."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..._lazy import functional as F
from ..._lazy import torch
from ..._seeds import seed_all
from ...data import tokens
from ...data.batches import ArrayBatches, WholeBatch
from .._job import JobConfig
from ..workload import Loss, Rate, Values, models

SIZES = {"layers": 2, "width": 96, "heads": 4, "kv_heads": 2, "ff": 256, "vocab": 256, "length": 128}
# Of a decoder of 1 B, which learns from preferences or rewards.
BILLION = {"layers": 16, "width": 2048, "heads": 16, "kv_heads": 16, "ff": 5504, "vocab": 32_000}


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
    whole = tokens.load(config.data, config.dataroot, options["vocab"])
    return tokens.windows(whole, options["length"], config.batch_size, config.data_seed)


def held_out_text(config: JobConfig, options: Values) -> WholeBatch:
    return tokens.held_out(tokens.load(config.data, config.dataroot, options["vocab"]), options["length"])


def loss(model: Any, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the next token."""
    return F.cross_entropy(models.widened(model(tokens)).flatten(0, 1), following.flatten())


def bits(model: Any, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """Bits per token, which is a byte where tokens are bytes."""
    return loss(model, tokens, following) / math.log(2)


def likelihoods(model: Any, tokens: torch.Tensor, prompt: int) -> torch.Tensor:
    """Logarithms of the chances of the tokens after the first `prompt`, `[N, L - prompt]`."""
    chances = models.widened(model(tokens[:, :-1])).log_softmax(-1)
    return chances.gather(-1, tokens[:, 1:, None]).squeeze(-1)[:, prompt - 1 :]


def answered(model: Any, tokens: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    """Prompts with answers one token shorter, sampled or (without a generator) the likeliest tokens."""
    for _ in range(tokens.shape[1] - 1):
        chances = models.widened(model(tokens)[:, -1]).softmax(-1)
        if generator is None:
            after = chances.argmax(-1, keepdim=True)
        else:
            after = torch.multinomial(chances.cpu(), 1, generator=generator).to(tokens.device)
        tokens = torch.cat([tokens, after], 1)
    return tokens


def taught(
    options: Values, teach: Callable[[Values], tuple[Callable[[int], tuple[torch.Tensor, ...]], Loss]], steps: int,
    seed: int, lr: float, rate: Rate | None = None,
) -> torch.nn.Module:  # fmt: skip
    """A decoder that has learned from some batches first: the same for every model that begins with it.

    Args:
        teach: options → (batches by their number, a loss); a function of a module.
    """
    decoder = models.Decoder(options)
    if steps:
        decoder.load_state_dict(_learned(tuple(sorted(options.items())), teach, steps, seed, lr, rate))
    return decoder


@lru_cache(maxsize=2)
def _learned(items: Any, teach: Any, steps: int, seed: int, lr: float, rate: Rate | None) -> dict[str, torch.Tensor]:
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        seed_all(seed)
        decoder, (batch, loss) = models.Decoder(dict(items)), teach(dict(items))
        optimizer = torch.optim.AdamW(decoder.parameters(), lr=lr, weight_decay=0.0)
        for i in range(steps):
            optimizer.param_groups[0]["lr"] = lr * (rate(i, steps) if rate else 1.0)
            optimizer.zero_grad(set_to_none=True)
            loss(decoder, *batch(i)).backward()
            optimizer.step()
    return {name: value.detach() for name, value in decoder.state_dict().items()}


# What all workloads that learn text have in common.
PAGES = "without FineWeb's tokens under --dataroot: CPython's pages on the language, as bytes"
OF_TEXT: dict[str, Any] = {
    "unit": "tokens", "data": text, "held_out": held_out_text, "clip_norm": 1.0,
    "items_per_sample": lambda options: options["length"],
}  # fmt: skip
