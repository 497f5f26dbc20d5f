# SPDX-License-Identifier: MIT
"""Translation by GNMT of 4 layers of 1024, on WMT16 English-German: labels smoothed by 0.1, Adam, gradients clipped.

The unit is a pair of sentences of up to 50 pieces: every batch has as many, whatever their lengths. The record has
how many pieces a pair has, to turn the rate into tokens.
"""

from __future__ import annotations

from typing import Any

from .._lazy import torch
from ..data import translation
from ..data.batches import BatchesInTurn
from ._job import JobConfig
from .declared_job import declare
from .workload import Card, Made, Preset, Values, Workload, models


def model(options: Values, hyper: Values) -> torch.nn.Module:
    made = models.GNMT(options["vocab_size"], options["hidden_size"], options["num_layers"], options["dropout"])
    made.smoothing = options["smoothing"]
    return made


def sentences(config: JobConfig, options: Values) -> BatchesInTurn:
    """Source `[S, N]`, target `[T, N]`, and the source's lengths as numbers."""
    pairs = translation.load(
        config.data, config.dataroot, options["vocab_size"], options["max_length_train"], config.data_seed
    )

    def begin() -> Any:
        drawn = translation.Batches(pairs, config.batch_size, config.data_seed)

        def draw() -> tuple[Any, ...]:
            source, lengths, target = drawn.next()
            return source, target, lengths.tolist()  # packing wants lengths on the CPU

        return draw

    # Of a target its first piece is given.
    pieces = len(pairs.source.pieces) + len(pairs.target.pieces) - len(pairs.target.lengths)
    record = {**pairs.origin.record(), "pieces_per_sentence": pieces / len(pairs.target.lengths)}
    return BatchesInTurn(begin, record, {"vocab_size": pairs.vocab_size})


def loss(model: Any, source: torch.Tensor, target: torch.Tensor, lengths: Any) -> torch.Tensor:
    """Cross-entropy of smoothed labels per pair."""
    logits = models.widened(model(source, torch.tensor(lengths), target[:-1]))
    return models.label_smoothing_loss(logits.flatten(0, 1), target[1:].flatten(), model.smoothing) / target.size(1)


declare(
    Workload(
        name="translator",
        description="GNMT of 4 layers of 1024 with attention, Adam, on WMT16 English-German",
        unit="sentences",
        options={
            "hidden_size": 1024, "num_layers": 4, "dropout": 0.2, "smoothing": 0.1, "lr": 5e-4, "grad_clip": 5.0,
            "max_length_train": 50,
            "vocab_size": translation.WMT16_VOCABULARY,  # of pairs that are not WMT16's
        },
        model=model,
        data=sentences,
        loss=loss,
        optimizer=Made("Adam", {"lr": "lr"}),
        hyper={"lr": 5e-4},
        clip_norm="grad_clip",
        half=("bf16",),  # torch has no LSTM over packed sequences in fp16 on a CPU
        presets={
            # A step of the whole model takes a core some seconds, however few sentences there are.
            "quick": Preset(3, 2, batch_size=4, observed=(6, 1), options={"hidden_size": 256}),
            "default": Preset(3, 67, batch_size=64, observed=(20, 10)),
        },
        card=Card(
            "translation",
            "GNMT: 4 layers of 1024, attention, label smoothing 0.1",
            source=("wu2016", "mila2019"),
            about=(
                "sentences of noise have lengths like WMT16's where the files are not there: the work of a batch is "
                "that of its lengths",
                "in half precision bf16 alone: torch has no LSTM over packed sequences in fp16 on a CPU",
                "the quality (BLEU) is not scored: the time is",
            ),
            changes=("no fp16, and nothing is reserved before the first step (numbers)",),
        ),
    )
)  # fmt: skip
