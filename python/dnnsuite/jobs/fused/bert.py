# SPDX-License-Identifier: MIT
"""Masked-language-model training of BERT, the first workload of HFTA's throughput study (MLSys 2021).

HFTA's script reads `--emsize 128` but builds its network from `--nhid` alone, 512 wide with a feed-forward of 2048,
with 512 positions, three segments, and no norm of the embeddings. Here each option names what it says, and the preset
`paper` has the network that HFTA built.
"""

from __future__ import annotations

from typing import Any

from ... import data
from ..._lazy import torch
from .._job import JobConfig
from ..declared_job import declare
from ..workload import Card, Preset, Values, Workload, models
from . import samplers


def masked_text(config: JobConfig, options: Values) -> data.batches.ArrayBatches:
    """Sequences of a text with tokens to fill in: tokens `[N, L]`, masked positions `[N, P]`, what stood there."""
    source = config.data if config.data != "real" else "wikitext" if config.dataroot else "pydoc"
    corpus = data.text.load(source, config.dataroot, options["vocab_size"], config.data_seed)
    return data.text.masked(corpus, config.batch_size, options["bptt"], config.data_seed)


def model(options: Values, hyper: Values) -> models.BERT:
    names = ("emsize", "nhid", "nlayers", "nhead", "dropout", "segments", "embedding_norm")
    sizes = {name: options[name] for name in names}
    length = max(options["bptt"], options["positions"])
    return models.BERT(torch.nn, options["vocab_size"], max_len=length, **sizes)


def loss(model: Any, tokens: torch.Tensor, positions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the masked positions `[N, P]` in the sequences `[N, L]`."""
    return torch.nn.functional.cross_entropy(models.widened(model(tokens, positions)), targets.flatten())


HFTA = {
    "emsize": 512, "nhid": 2048, "vocab_size": 33_279, "positions": 512, "segments": 3, "embedding_norm": False,
}  # fmt: skip
WORKLOAD = Workload(
    name="bert",
    description="BERT masked-language model, 8 layers of 128, Adadelta + StepLR, on text",
    unit="sequences",
    options={
        "emsize": 128, "nhid": 512, "nlayers": 8, "nhead": 8, "dropout": 0.1, "bptt": 32, "vocab_size": 8192,
        "positions": 0, "segments": 0, "embedding_norm": True,
    },
    hyper=samplers.ADADELTA_MIDDLE,
    sample=samplers.adadelta,
    model=model,
    data=masked_text,
    loss=loss,
    optimizer=samplers.ADADELTA,
    schedule=samplers.STEPS,
    presets={
        "quick": Preset(3, 8, batch_size=8, plan=(1, 4), budget_s=40.0, options={"nlayers": 2, "vocab_size": 2048}),
        "default": Preset(3, 4, plan=(1, 2, 4), budget_s=95.0, cuda=samplers.ON_CUDA),
        "paper": Preset(5, 1000, repeats=3, max_num_Bs=10, options=HFTA),
    },
    card=Card(
        "language modelling",
        "BERT encoder of 8 layers, 8 heads; --preset paper has hidden 512",
        source=("devlin2019", "merity2017", "zeiler2012", "wang2021"),
        about=(
            samplers.DECLARED,
            "the default is 128 wide, to end in minutes: --preset paper is HFTA's network of 512",
        ),
    ),
)  # fmt: skip

declare(WORKLOAD)
