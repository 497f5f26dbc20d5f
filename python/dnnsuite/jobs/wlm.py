# SPDX-License-Identifier: MIT
"""A word language model on WikiText-2, in single and in half precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from .._seeds import seed_all
from ..data import words
from ..errors import InvalidArgument
from ._job import register
from ._plain_job import PlainJob

if TYPE_CHECKING:
    import torch

_EVALUATION_BATCH, _EVALUATION_SEGMENTS = 10, 5
_DEFAULTS = {
    "repeat": 30,
    "number": 5,
    "emsize": 656,
    "nhid": 656,
    "nlayers": 2,
    "dropout": 0.5,
    "bptt": 35,
    "clip": 0.25,
    "lr": 20.0,
    "model": "GRU",
    "vocab_size": words.WIKITEXT_2_WORDS,  # of a text that is not WikiText
}


class Segment(NamedTuple):
    """Tokens `[L, N]`, the ones after each, flat `[L · N]`, and whether the text begins here."""

    tokens: torch.Tensor
    targets: torch.Tensor
    first: bool


@register("wlm")
class WordLanguageModel(PlainJob):
    """2 layers of GRU, 656 wide, over segments of 35 tokens; gradient descent, 20, gradients clipped at 0.25.

    The text is cut into `batch_size` rows, which are read side by side; the state goes on from segment to segment.
    """

    description = "GRU language model of 2 layers of 656, gradient descent, on WikiText-2"
    unit = "tokens"
    defaults: ClassVar = {"batch_size": 64, **_DEFAULTS}
    smoke: ClassVar = {"batch_size": 2, "repeat": 5, "number": 1}

    def setup(self) -> None:
        import torch

        from ..models.gru_lm import GRULanguageModel

        options = self.options
        if options["model"] != "GRU":
            raise InvalidArgument(f"model {options['model']!r} is not GRU, which is what this job is")
        if options["bptt"] < 1:
            raise InvalidArgument(f"bptt must be 1 or more, got {options['bptt']}")
        self.words = self._load()
        self._rows = self._in_rows(self.words.train, self.config.batch_size)
        self._at = 0
        seed_all(self.config.seed)
        self.model = GRULanguageModel(
            self.words.vocab_size, options["emsize"], options["nhid"], options["nlayers"], options["dropout"]
        ).to(self.device)
        self._state = self.model.first_state(self.config.batch_size)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=options["lr"])

    def _load(self) -> words.Words:
        config = self.config
        return words.load(config.data, config.dataroot, self.options["vocab_size"], config.data_seed)

    def _in_rows(self, tokens: Any, rows: int) -> torch.Tensor:
        """Return the text as `[T / rows, rows]` on the device: each column is a piece of it."""
        import torch

        length = len(tokens) // rows
        if length <= self.options["bptt"]:
            raise InvalidArgument(
                f"the text has {len(tokens)} tokens, {length} in each of {rows} rows: less than one segment of "
                f"{self.options['bptt']}; use a longer text, or a smaller batch_size or bptt"
            )
        text = torch.tensor(tokens[: length * rows], dtype=torch.int64)
        return text.view(rows, length).t().contiguous().to(self.device)

    @property
    def items_per_step(self) -> int:
        return self.config.batch_size * self.options["bptt"]

    def batch(self) -> Segment:
        """Return the next whole segment; after the last, the first again."""
        length = self.options["bptt"]
        if self._at + length >= len(self._rows):
            self._at = 0
        at, self._at = self._at, self._at + length
        return Segment(self._rows[at : at + length], self._rows[at + 1 : at + 1 + length].flatten(), at == 0)

    def train(self, batch: Segment) -> torch.Tensor:
        import torch

        state = torch.zeros_like(self._state) if batch.first else self._state
        with self.autocast():
            logits, state = self.model(batch.tokens, state)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), batch.targets)
        self._state = state.detach()
        self.update(loss, self.optimizer, self.options["clip"], self.model.parameters())
        return loss

    def metrics(self) -> dict[str, float]:
        """Return the mean loss per token over the first 5 segments of 10 rows of the validation text."""
        import torch

        rows = self._in_rows(self.words.valid, _EVALUATION_BATCH)
        length, total = self.options["bptt"], 0.0
        state = self.model.first_state(_EVALUATION_BATCH)
        segments = min(_EVALUATION_SEGMENTS, (len(rows) - 1) // length)
        self.model.eval()
        for at in range(0, segments * length, length):
            with torch.no_grad(), self.autocast():
                logits, state = self.model(rows[at : at + length], state)
            targets = rows[at + 1 : at + 1 + length].flatten()
            total += float(torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets))
        self.model.train()
        return {"val_loss": total / segments}

    def provenance(self) -> dict[str, Any]:
        sizes = ("emsize", "nhid", "nlayers", "dropout", "bptt")
        return {
            "data": {**self.words.origin.record(), "vocab_size": self.words.vocab_size},
            "model": {"type": "GRU", **{name: self.options[name] for name in sizes}},
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "optimizer": f"SGD, lr {self.options['lr']}, gradients clipped at {self.options['clip']}",
        }


@register("wlmfp16")
class WordLanguageModelHalf(WordLanguageModel):
    """The same by torch.amp, the loss scaled by 128; a vocabulary of a multiple of 8, which tensor cores want."""

    description = "GRU language model of 2 layers of 656 in half precision, on WikiText-2"
    default_precision = "fp16"
    defaults: ClassVar = {"batch_size": 128, **_DEFAULTS, "static_loss_scale": 128.0}

    def setup(self) -> None:
        import torch

        super().setup()
        if self._scaler is not None:
            # It stays as it is unless a step overflows: the scale that grows is another method.
            never = 2**31 - 1
            scale = self.options["static_loss_scale"]
            self._scaler = torch.amp.GradScaler(self.device.type, init_scale=scale, growth_interval=never)

    def _load(self) -> words.Words:
        return words.pad_vocabulary(super()._load(), 8)
