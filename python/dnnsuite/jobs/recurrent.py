# SPDX-License-Identifier: MIT
"""Jobs of recurrent networks on text: a language model, and a translator.

`wlm` and `wlmfp16` are a word language model on WikiText-2, in single and in half precision: GRU, gradient descent,
clipped at 0.25. The text is cut into `batch_size` rows, which are read side by side; the state goes on from segment to
segment.

`translator` is GNMT of 4 layers of 1024, on WMT16 English-German: labels smoothed by 0.1, Adam, gradients clipped. The
unit is a pair of sentences of up to 50 pieces: every batch has as many, whatever their lengths. The record has how many
pieces a pair has, to turn the rate into tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .._lazy import torch
from ..data import batches, translation, words
from ..data.batches import BatchesInTurn
from ..errors import InvalidArgument
from ._job import JobConfig
from .declared_job import declare
from .workload import Card, Made, Metric, Preset, Values, Workload, models

_ROWS, _SEGMENTS = 10, 5  # of the validation text


def gru(options: Values, hyper: Values) -> torch.nn.Module:
    """The GRU, with the state that it has after a segment in a buffer `[layers, N, H]`."""
    sizes = (options["emsize"], options["nhid"], options["nlayers"], options["dropout"])
    made = models.GRULanguageModel(options["vocab_size"], *sizes)
    made.register_buffer("state", made.first_state(options["rows"]))
    return made


class Segments:
    """Tokens `[L, N]`, the ones after each `[L, N]`, and 0 where the text begins, else 1, `[1, 1, 1]`."""

    def __init__(self, text: words.Words, config: JobConfig, options: Values) -> None:
        self._length = options["bptt"]
        self._rows = _in_rows(text.train, config.batch_size, self._length).to(config.device)
        self._goes_on = torch.tensor([0.0, 1.0], device=config.device)[:, None, None, None]
        self.record = text.origin.record()
        self.sizes = {"vocab_size": text.vocab_size, "rows": config.batch_size}

    def batch(self, i: int) -> tuple[torch.Tensor, ...]:
        """Return whole segment i; after the last, the first again."""
        at = i % ((len(self._rows) - 1) // self._length) * self._length
        end = at + self._length
        return self._rows[at:end], self._rows[at + 1 : end + 1], self._goes_on[int(at > 0)]


def _in_rows(tokens: Any, rows: int, bptt: int) -> torch.Tensor:
    """Return the text as `[T / rows, rows]`: each column is a piece of it."""
    if bptt < 1:
        raise InvalidArgument(f"bptt must be 1 or more, got {bptt}")
    length = len(tokens) // rows
    if length <= bptt:
        raise InvalidArgument(
            f"the text has {len(tokens)} tokens, {length} in each of {rows} rows: less than one segment of "
            f"{bptt}; use a longer text, or a smaller batch_size or bptt"
        )
    return torch.tensor(tokens[: length * rows], dtype=torch.int64).view(rows, length).t().contiguous()


def _text(config: JobConfig, options: Values, multiple: int) -> words.Words:
    if options["model"] != "GRU":
        raise InvalidArgument(f"model {options['model']!r} is not GRU, which is what this job is")
    return words.pad_vocabulary(
        words.load(config.data, config.dataroot, options["vocab_size"], config.data_seed), multiple
    )


def segments(multiple: int = 1) -> Callable[[JobConfig, Values], Segments]:
    """The training text, with a vocabulary of a multiple of `multiple`."""
    return lambda config, options: Segments(_text(config, options, multiple), config, options)


def valid(config: JobConfig, options: Values) -> batches.WholeBatch:
    """The first segments of the validation text: tokens, and the ones after each, `[5 L, 10]`."""
    text = _text(config, options, 1)
    rows = _in_rows(text.valid, _ROWS, options["bptt"])
    end = min(_SEGMENTS, (len(rows) - 1) // options["bptt"]) * options["bptt"]
    return batches.WholeBatch((rows[:end], rows[1 : end + 1]), text.origin.record())


def gru_loss(model: Any, tokens: torch.Tensor, targets: torch.Tensor, goes_on: torch.Tensor) -> torch.Tensor:
    logits, state = model(tokens, model.state * goes_on)
    model.state.copy_(state.detach())
    return _entropy(logits, targets)


def val_loss(model: Any, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean loss per token, from a state of zeros on."""
    return _entropy(model(tokens, model.state[:, :1].expand(-1, _ROWS, -1) * 0)[0], targets)


def _entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(models.widened(logits).flatten(0, 1), targets.flatten())


_TINY = {"emsize": 64, "nhid": 64, "vocab_size": 2000}
_CARD = Card(
    "language modelling",
    "embedding of 656, GRU of 2 layers of 656, dropout 0.5",
    source=("merity2017", "cho2014", "mila2019"),
    about=("the rate counts tokens; the original counted segments of 35",),
)
_WLM = Workload(
    name="wlm",
    description="GRU language model of 2 layers of 656, gradient descent, on WikiText-2",
    unit="tokens",
    options={
        "emsize": 656, "nhid": 656, "nlayers": 2, "dropout": 0.5, "bptt": 35, "lr": 20.0, "clip": 0.25, "model": "GRU",
        "vocab_size": words.WIKITEXT_2_WORDS,  # of a text that is not WikiText
    },
    model=gru,
    data=segments(),
    loss=gru_loss,
    held_out=valid,
    metric=Metric("val_loss", val_loss, "less", batches=1),
    optimizer=Made("SGD", {"lr": "lr"}),
    hyper={"lr": 20.0},
    clip_norm="clip",
    items_per_sample=lambda options: options["bptt"],
    presets={
        "quick": Preset(3, 4, batch_size=2, plan=(1, 2), budget_s=40.0, observed=(5, 1)),
        "default": Preset(3, 8, batch_size=16, plan=(1, 2, 4), budget_s=95.0, options=_TINY),
        "baselines": Preset(3, 500, batch_size=64, repeats=3, max_num_Bs=4, observed=(30, 5)),
    },
    card=_CARD,
)  # fmt: skip
declare(_WLM)
declare(
    replace(
        _WLM,
        name="wlmfp16",
        description="GRU language model of 2 layers of 656 in half precision, on WikiText-2",
        data=segments(8),  # which tensor cores want
        precision="fp16",
        loss_scale=128.0,
        presets={**_WLM.presets, "baselines": replace(_WLM.presets["baselines"], batch_size=128)},
        card=_CARD._replace(
            source=(*_CARD.source, "micikevicius2018"),
            about=(*_CARD.about, "torch.amp instead of apex, which is archived; the loss scale 128 is kept"),
        ),
    )
)


def gnmt(options: Values, hyper: Values) -> torch.nn.Module:
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


def translator_loss(model: Any, source: torch.Tensor, target: torch.Tensor, lengths: Any) -> torch.Tensor:
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
        model=gnmt,
        data=sentences,
        loss=translator_loss,
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
