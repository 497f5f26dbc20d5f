# SPDX-License-Identifier: MIT
"""Jobs that train a decoder on text, and their parts: text, loss, operations, and weights that know something.

`gpt` is pretraining, in the form of modded-nanogpt's and nanochat's. `mamba` is a selective state space model, Mamba-2
in matrix form. `moe` is a sparse mixture of experts: with a capacity the shapes do not depend on the data; the experts
are no good if all tokens go to a few of them, so that the measure of quality is infinite where one has more than three
times its share.

`lora` is low-rank adapters on a frozen decoder, the form of MLPerf's fine-tuning: they learn source code. On a base of
random weights adapters learn nothing, so that the base learns the pages on the language first, while the model is made.
All models of an array have adapters of their own on equal bases.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..._lazy import functional as F
from ..._lazy import torch
from ..._seeds import seed_all
from ...data import words
from ...data.batches import ArrayBatches, WholeBatch
from .._job import JobConfig
from ..declared_job import declare
from ..workload import Card, Group, Loss, Made, Metric, Rate, Values, Workload, models, sizes

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
    whole = words.load_tokens(config.data, config.dataroot, options["vocab"])
    return words.windows(whole, options["length"], config.batch_size, config.data_seed)


def held_out_text(config: JobConfig, options: Values) -> WholeBatch:
    return words.held_out(words.load_tokens(config.data, config.dataroot, options["vocab"]), options["length"])


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


_ADAMW = {"lr": "lr", "betas": (0.9, 0.95)}

declare(
    Workload(
        name="gpt",
        description="pretraining of language models",
        **OF_TEXT,
        options={**SIZES, "layers": 3},
        model=lambda options, hyper: models.Decoder(options),
        loss=loss,
        metric=Metric("bits per token", bits, "less", {"quick": 3.6, "default": 3.0}, batches=1),
        optimizer=[
            Group(lambda name, parameter: parameter.dim() > 1, Made("AdamW", {**_ADAMW, "weight_decay": 0.05})),
            Group(lambda name, parameter: True, Made("AdamW", {**_ADAMW, "weight_decay": 0.0})),
        ],
        hyper={"lr": 4e-3},
        rate=Rate(warmup=0.1, constant=0.3),
        flops_per_item=flops_per_token,
        presets=sizes(
            (40, 8), (200, 32), (1500, 32), num_Bs=4,
            layers=12, width=768, heads=6, kv_heads=6, ff=2048, vocab=50_304, length=1024,
        ),
        card=Card(
            "language modelling",
            "decoder 12 x 768, 6 heads, rotary positions, RMS norms, gated feed-forward of 2048; head tied",
            source=("jordan2024", "kaplan2020"),
            about=(
                "AdamW in place of Muon and AdamW, whose products in bfloat16 a CPU computes slowly",
                PAGES,
            ),
            parameters=124,
        ),
    )
)  # fmt: skip


def mamba(options: Values, hyper: Values) -> models.Decoder:
    width, each = options["width"], (options["head"], options["state"], options["chunk"])
    return models.Decoder(options, lambda: models.Added(width, models.StateSpace(width, *each)))


def mamba_flops(options: Values) -> float:
    width, state, chunk = options["width"], options["state"], options["chunk"]
    inner = 2 * width
    projections = width * (3 * inner + 2 * state + inner // options["head"])
    scan = chunk * (state + inner) + 2 * state * inner + 4 * (inner + 2 * state)
    return 6.0 * (options["layers"] * (projections + scan) + options["vocab"] * width)


declare(
    Workload(
        name="mamba",
        description="state-space models: a scan in matrix form",
        **OF_TEXT,
        options={**SIZES, "width": 64, "head": 32, "state": 16, "chunk": 32},
        model=mamba,
        loss=loss,
        metric=Metric("bits per token", bits, "less", {"quick": 3.6, "default": 3.0}, batches=1),
        optimizer=Made("AdamW", {"lr": "lr", "betas": (0.9, 0.95), "weight_decay": 0.01}),
        hyper={"lr": 4e-3},
        rate=Rate(warmup=0.1, constant=0.5),
        flops_per_item=mamba_flops,
        presets=sizes(
            (50, 8), (200, 32), (1000, 4), num_Bs=4,
            layers=24, width=768, head=64, state=128, chunk=256, vocab=50_288, length=2048,
        ),
        card=Card(
            "language modelling",
            "Mamba-2 in matrix form: 24 x 768, state 128, heads of 64, chunks of 256",
            source=("dao2024",),
            about=("text in place of selective copying: nothing of that size learns to copy in 20 s", PAGES),
            parameters=129,
        ),
    )
)  # fmt: skip


_BALANCE = 0.01  # weight of the loss that spreads the tokens
_MOST = 3.0  # times its share that an expert may have


def balanced_loss(model: Any, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    logits, balance, _ = model(tokens)
    return F.cross_entropy(models.widened(logits).flatten(0, 1), following.flatten()) + _BALANCE * balance


def balanced_bits(model: Any, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """Bits per token; infinite where an expert has more than three times its share."""
    logits, _, greatest = model(tokens)
    found = F.cross_entropy(models.widened(logits).flatten(0, 1), following.flatten()) / math.log(2)
    return torch.where(greatest <= _MOST, found, torch.full_like(found, math.inf))


def moe_flops(options: Values) -> float:
    seats = models.experts.CAPACITY * models.experts.CHOSEN
    return flops_per_token({**options, "ff": seats * options["ff"]})


declare(
    Workload(
        name="moe",
        description="experts with a router: gather, scatter, small products",
        **OF_TEXT,
        options={**SIZES, "ff": 96, "experts": 8},
        model=lambda options, hyper: models.Mixture(options),
        loss=balanced_loss,
        metric=Metric("balanced bits per token", balanced_bits, "less", {"quick": 3.6, "default": 3.0}, batches=1),
        optimizer=Made("AdamW", {"lr": "lr", "betas": (0.9, 0.95), "weight_decay": 0.1}),
        hyper={"lr": 3e-3},
        rate=Rate(warmup=0.1, constant=0.1, shape="cosine"),
        flops_per_item=moe_flops,
        presets=sizes(
            (50, 8), (200, 32), (1500, 32), num_Bs=4,
            layers=12, width=768, heads=6, kv_heads=6, ff=1536, vocab=50_304, length=1024,
        ),
        card=Card(
            "language modelling",
            "decoder 12 x 768, 8 experts of 1536, the best 2 for each token, capacity 1.5",
            source=("fedus2022",),
            about=("sizes of gpt-oss cut down to one GPU: the form is measured, not the size", PAGES),
        ),
    )
)  # fmt: skip


def lora(options: Values, hyper: Values) -> torch.nn.Module:
    """The frozen decoder with adapters on queries, values, outputs and feed-forwards."""
    base = taught(options, _pages, options["base_steps"], 1, 4e-3, Rate(warmup=0.1, constant=0.5))
    return models.adapt(base, options["rank"], scale=2.0)  # alpha = 2 r, as in MLPerf


def _pages(options: Values) -> Any:
    return text(JobConfig(batch_size=8, data_seed=1), options).batch, loss


def source_code(config: JobConfig, options: Values) -> ArrayBatches:
    return words.windows(words.modules(), options["length"], config.batch_size, config.data_seed)


def gain(model: Any, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """Bits per byte that the adapters are better than the frozen base."""
    adapters = [part for part in model.modules() if hasattr(part, "scale")]
    own, scales = loss(model, tokens, following), [part.scale for part in adapters]
    for part in adapters:
        part.scale = 0.0
    try:
        frozen = loss(model, tokens, following)
    finally:
        for part, scale in zip(adapters, scales, strict=True):
            part.scale = scale
    return (frozen - own) / math.log(2)


def lora_flops(options: Values) -> float:
    """Operations for a token, without gradients of the frozen weights."""
    width, shared = options["width"], options["width"] * options["kv_heads"] // options["heads"]
    adapters = options["layers"] * options["rank"] * (8 * width + shared + 3 * options["ff"])
    attention = attention_flops(options)
    return (flops_per_token(options) - attention) * 2 / 3 + attention + 6 * adapters


declare(
    Workload(
        name="lora",
        description="fine-tuning with a frozen base",
        unit="tokens",
        options={**SIZES, "layers": 3, "rank": 8, "base_steps": 90, "again": 0},
        model=lora,
        data=source_code,
        loss=loss,
        held_out=lambda config, options: words.held_out(words.modules(), options["length"]),
        metric=Metric("bits better than the base", gain, "more", {"quick": 0.15, "default": 0.15}, batches=1),
        optimizer=Made("AdamW", {"lr": "lr", "weight_decay": 0.0}),
        hyper={"lr": 1e-2},
        rate=Rate(warmup=0.1, constant=0.1, shape="cosine"),
        clip_norm=1.0,
        items_per_sample=lambda options: options["length"],
        flops_per_item=lora_flops,
        presets=sizes(
            (25, 8), (200, 8), (100, 1), layers=32, width=4096, heads=32, kv_heads=8, ff=14_336, vocab=128_256,
            length=8192, rank=16, base_steps=0, again=1,
        ),
        card=Card(
            "language modelling",
            "decoder 32 x 4096, 32 heads over 8, gated feed-forward of 14336; adapters of rank 16",
            source=("hu2022", "grattafiori2024"),
            about=(
                "the base is random at paper size: its weights are not given away with this package",
                "the head is tied to the embedding, which is 525 M fewer than Llama-3.1-8B has",
            ),
            parameters=8030,
        ),
    )
)  # fmt: skip
