# SPDX-License-Identifier: MIT
"""A causal transformer language model on words, the second of HFTA's workloads."""

from __future__ import annotations

from typing import Any

from ... import data
from ..._lazy import torch
from .._job import JobConfig
from ..declared_job import declare
from ..workload import Card, Preset, Values, Workload, models
from . import samplers


def model(options: Values, hyper: Values) -> models.TransformerLanguageModel:
    return models.TransformerLanguageModel(
        options["vocab_size"], options["emsize"], options["nhead"], options["nlayers"], options["nhid"],
        options["dropout"], max_len=options["bptt"],
    )  # fmt: skip


def segments(config: JobConfig, options: Values) -> data.batches.ArrayBatches:
    """Tokens `[N, L]` and those that follow each, `[N, L]`."""
    text = data.words.load(config.data, config.dataroot, options["vocab_size"], config.data_seed)
    length = options["bptt"]
    rows = torch.tensor(text.train, dtype=torch.int64).unfold(0, length + 1, length)
    return data.batches.ArrayBatches(
        rows[:, :-1], rows[:, 1:], batch_size=config.batch_size, seed=config.data_seed,
        record=text.origin.record(), sizes={"vocab_size": text.vocab_size},
    )  # fmt: skip


def loss(model: Any, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the next token at every position."""
    return torch.nn.functional.cross_entropy(models.widened(model(tokens)).flatten(0, 1), targets.flatten())


WORKLOAD = Workload(
    name="transformer",
    description="transformer language model, 2 layers of 128, Adadelta + StepLR, on text",
    unit="sequences",
    options={
        "emsize": 128, "nhid": 128, "nlayers": 2, "nhead": 2, "dropout": 0.2, "bptt": 32, "vocab_size": 8192,
    },
    hyper=samplers.ADADELTA_MIDDLE,
    sample=samplers.adadelta,
    model=model,
    data=segments,
    loss=loss,
    optimizer=samplers.ADADELTA,
    schedule=samplers.STEPS,
    presets={
        "quick": Preset(3, 8, batch_size=8, plan=(1, 4), budget_s=40.0, options={"vocab_size": 2048}),
        "default": Preset(3, 8, plan=(1, 2, 4), budget_s=95.0, cuda=samplers.ON_CUDA),
        "paper": Preset(5, 1000, repeats=3, max_num_Bs=10, options={"vocab_size": 33_278}),
    },
    card=Card(
        "language modelling",
        "transformer encoder of 2 layers of 128, 2 heads, dropout 0.2",
        source=("vaswani2017", "merity2017", "zeiler2012", "wang2021"),
        about=(samplers.DECLARED, "HFTA's own cannot be built: a module it imports was renamed"),
    ),
)  # fmt: skip

declare(WORKLOAD)
