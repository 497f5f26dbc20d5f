# SPDX-License-Identifier: MIT
"""Speech by a Conformer (Gulati et al., 2020) and connectionist temporal classification.

The speech is drawn: each of ten symbols is a pair of tones in the mel bands, of a length and loudness that vary, with
silence between and noise over all. The measure is the share of wrong symbols: deletions, insertions and substitutions
of the likeliest answer.
"""

from __future__ import annotations

from typing import Any

from ..._lazy import functional as F
from ..._lazy import torch
from ...data.batches import BatchesInTurn
from .._job import JobConfig
from ..declared_job import declare
from ..workload import HELD_OUT, Card, Made, Metric, Rate, Values, Workload, models, sizes

_SPOKEN = 4  # symbols of an utterance
_SYMBOLS = 10  # drawn ones; symbol 0 is the blank


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
    chances = models.widened(model(x)).log_softmax(-1).transpose(0, 1)
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


declare(
    Workload(
        name="conformer",
        description="speech: convolutions in time, attention, CTC",
        unit="utterances",
        options={"layers": 2, "width": 64, "heads": 4, "kernel": 5, "mel": 40, "frames": 96, "symbols": _SYMBOLS + 1},
        model=lambda options, hyper: models.Conformer(options),
        data=utterances,
        loss=loss,
        held_out=lambda config, options: utterances(config, options, HELD_OUT),
        metric=Metric("wrong symbols", wrong, "less", {"quick": 0.1, "default": 0.03}),
        optimizer=Made("AdamW", {"lr": "lr", "weight_decay": 1e-4}),
        hyper={"lr": 2e-3},
        rate=Rate(warmup=0.1, constant=0.3),
        clip_norm=5.0,
        flops_per_item=flops,
        presets=sizes(
            (50, 16), (300, 64), (100, 256),
            layers=4, width=512, heads=8, kernel=5, mel=80, frames=1600, symbols=1024,
        ),
        card=Card(
            "speech",
            "Conformer: 4 x 512, 8 heads, kernel 5, 80 mel bands",
            source=("gulati2020",),
            about=(
                "AdamW in place of NAdamW: torch keeps a product of NAdam in float32, so that no array is equal to "
                "models alone",
                "drawn tones in place of LibriSpeech, one length for all",
                "group norm in place of batch norm, so that the length of a batch does not matter",
                "AlgoPerf, whose sizes these are, names no count of parameters",
                "no audio seconds: the unit is the utterance, of 1600 frames at paper size",
            ),
        ),
    )
)  # fmt: skip
