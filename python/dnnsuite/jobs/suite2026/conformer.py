# SPDX-License-Identifier: MIT
"""Speech by a Conformer (Gulati et al., 2020) and connectionist temporal classification.

The speech is drawn: each of ten symbols is a pair of tones in the mel bands, of a length and loudness that vary, with
silence between and noise over all. The measure is the share of wrong symbols: deletions, insertions and substitutions
of the likeliest answer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ...data.batches import BatchesInTurn
from .._job import JobConfig
from ..declared_job import declare, widened
from ..workload import Made, Metric, Preset, Rate, Values, Workload

_SPOKEN = 4  # symbols of an utterance
_SYMBOLS = 10  # drawn ones; symbol 0 is the blank
_HELD_OUT = 1 << 40  # added to the seed of utterances that are not trained on


class _Convolution(nn.Module):
    """Gated, depthwise in time, normed."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        self.mix = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.norm = nn.GroupNorm(1, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = F.glu(self.enter(x.transpose(1, 2)), 1)
        return self.leave(F.silu(self.norm(self.mix(found)))).transpose(1, 2)


class _Block(nn.Module):
    """Half a feed-forward, attention, convolution, half a feed-forward."""

    def __init__(self, width: int, heads: int, kernel: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.first, self.last = (
            nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width)) for _ in range(2)
        )
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.convolution = _Convolution(width, kernel)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + 0.5 * self.first(self.norms[0](x))
        h = self.norms[1](x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        x = x + self.convolution(self.norms[2](x))
        return self.norms[4](x + 0.5 * self.last(self.norms[3](x)))


class Conformer(nn.Module):
    """Mel bands `[N, T, mel]` → logits of symbols `[N, T / 4, symbols]`."""

    def __init__(self, options: Values) -> None:
        super().__init__()
        width, mel = options["width"], options["mel"]
        self.enter = nn.Sequential(
            nn.Conv1d(mel, width, 3, 2, 1), nn.SiLU(), nn.Conv1d(width, width, 3, 2, 1), nn.SiLU()
        )
        self.place = nn.Parameter(torch.randn(options["frames"] // 4, width) * 0.02)
        self.blocks = nn.ModuleList(
            _Block(width, options["heads"], options["kernel"]) for _ in range(options["layers"])
        )
        self.leave = nn.Linear(width, options["symbols"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.enter(x.transpose(1, 2)).transpose(1, 2) + self.place
        for block in self.blocks:
            h = block(h)
        return self.leave(h)


def utterances(config: JobConfig, options: Values, held_out: int = 0) -> BatchesInTurn:
    """Mel bands `[N, T, mel]`, of which bands are masked in training, and the symbols `[N, 4]`."""
    count, frames, mel = config.batch_size, options["frames"], options["mel"]
    bands, time = torch.arange(mel), torch.arange(frames)
    slot = frames // _SPOKEN

    def draw(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        said = torch.randint(_SYMBOLS, (count, _SPOKEN), generator=generator)
        length = torch.randint(slot // 3, slot * 3 // 4, (count, _SPOKEN, 1), generator=generator)
        start = (
            torch.arange(_SPOKEN)[:, None] * slot
            + (torch.rand(count, _SPOKEN, 1, generator=generator) * (slot - length)).long()
        )
        on = ((time >= start) & (time < start + length)).float()
        low, high = said * mel // (2 * _SYMBOLS), mel // 2 + (7 * said % _SYMBOLS) * mel // (2 * _SYMBOLS)
        tones = sum((-((bands - tone[..., None]) ** 2) / 2).exp() for tone in (low, high))
        loud = 0.7 + 0.6 * torch.rand(count, _SPOKEN, 1, generator=generator)
        x = torch.einsum("nst,nsm->ntm", on * loud, tones)
        x = x + 0.3 * torch.randn(x.shape, generator=generator)
        if not held_out:
            first = torch.randint(mel, (count, 1, 1), generator=generator)
            x = x.masked_fill((bands >= first) & (bands < first + mel // 20), 0.0)
        return x, said + 1

    return BatchesInTurn.drawn(draw, config.data_seed + held_out, "tones for symbols")


def loss(model: Any, x: torch.Tensor, said: torch.Tensor) -> torch.Tensor:
    chances = widened(model(x)).log_softmax(-1).transpose(0, 1)
    length, count = len(chances), len(said)
    frames = torch.full((count,), length, dtype=torch.long)
    symbols = torch.full((count,), said.shape[1], dtype=torch.long)
    return F.ctc_loss(chances, said, frames, symbols)


def wrong(model: Any, x: torch.Tensor, said: torch.Tensor) -> torch.Tensor:
    """Symbols of the likeliest answers that are not what was said there, and those too many, over those said."""
    best = model(x).argmax(-1)
    kept = (best > 0) & (best != F.pad(best[:, :-1], (1, 0)))
    place = torch.where(kept, kept.cumsum(1), 0)  # of a symbol in the answer, from 1
    answer = torch.zeros_like(F.pad(best, (0, 1))).scatter(1, place, best)[:, 1:]
    more = (kept.sum(1) - said.shape[1]).clamp(min=0)
    return ((answer[:, : said.shape[1]] != said).sum(1) + more).double().mean() / said.shape[1]


def flops(options: Values) -> float:
    width, frames, mel = options["width"], options["frames"] // 4, options["mel"]
    blocks = options["layers"] * width * (23 * width + options["kernel"] + 2 * frames)
    return 6.0 * frames * (blocks + width * (2 * 3 * mel + 3 * width + options["symbols"]))


_PAPER = {"layers": 4, "width": 512, "heads": 8, "kernel": 5, "mel": 80, "frames": 1600, "symbols": 1024}
declare(
    Workload(
        name="conformer",
        description="attention and convolutions in time learn to write down tones",
        unit="utterances",
        options={"layers": 2, "width": 64, "heads": 4, "kernel": 5, "mel": 40, "frames": 96, "symbols": _SYMBOLS + 1},
        model=lambda options, hyper: Conformer(options),
        data=utterances,
        loss=loss,
        held_out=lambda config, options: utterances(config, options, _HELD_OUT),
        metric=Metric("wrong symbols", wrong, "less", {"quick": 0.1, "default": 0.03}),
        optimizer=Made("AdamW", {"lr": "lr", "weight_decay": 1e-4}),
        hyper={"lr": 2e-3},
        rate=Rate(warmup=0.1, constant=0.3),
        clip_norm=5.0,
        flops_per_item=flops,
        presets={
            "quick": Preset(3, 50, batch_size=16, plan=(1, 4), budget_s=40.0),
            "default": Preset(3, 300, batch_size=64, plan=(1, 2, 4), budget_s=95.0),
            "paper": Preset(3, 100, batch_size=256, repeats=3, max_num_Bs=2, options=_PAPER),
        },
    )
)
