# SPDX-License-Identifier: MIT
"""Translation by GNMT, on WMT16 English-German."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .._seeds import seed_all
from ..data import translation
from ._job import register
from ._plain_job import PlainJob

if TYPE_CHECKING:
    import torch


@register("translator")
class Translator(PlainJob):
    """GNMT of 4 layers of 1024, labels smoothed by 0.1, Adam 5e-4, gradients clipped at 5; sentences up to 50 pieces.

    The unit is a pair of sentences: every batch has as many, whatever their lengths. `metrics` has how many pieces a
    pair had so far, to turn the rate into tokens.
    """

    description = "GNMT of 4 layers of 1024 with attention, Adam, on WMT16 English-German"
    unit = "sentences"
    defaults: ClassVar = {
        "batch_size": 64,
        "repeat": 20,
        "number": 10,
        "hidden_size": 1024,
        "num_layers": 4,
        "dropout": 0.2,
        "smoothing": 0.1,
        "lr": 5e-4,
        "grad_clip": 5.0,
        "max_length_train": 50,
        "vocab_size": translation.WMT16_VOCABULARY,  # of pairs that are not WMT16's
    }
    # A step of the whole model takes a core some seconds, however few sentences there are.
    smoke: ClassVar = {"batch_size": 4, "repeat": 6, "number": 1, "hidden_size": 256}

    @classmethod
    def precisions(cls, device: str) -> list[str]:
        """Return the precisions; on a CPU without fp16, in which torch has no LSTM over packed sequences there."""
        return super().precisions(device) if device.startswith("cuda") else ["fp32", "bf16"]

    def setup(self) -> None:
        import torch

        from ..models.gnmt import GNMT

        config, options = self.config, self.options
        self.pairs = translation.load(
            config.data, config.dataroot, options["vocab_size"], options["max_length_train"], config.data_seed
        )
        self._batches = translation.Batches(self.pairs, config.batch_size, config.data_seed)
        self._pieces, self._sentences = 0, 0
        seed_all(config.seed)
        sizes = (options["hidden_size"], options["num_layers"], options["dropout"])
        self.model = GNMT(self.pairs.vocab_size, *sizes).to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=options["lr"])
        if self.device.type == "cuda":
            self._reserve()

    def _reserve(self) -> None:
        """Run the longest batch that can come, without learning: the allocator asks for its memory here."""
        import torch

        size = (self.options["max_length_train"], self.config.batch_size)
        tokens = torch.full(size, translation.END, device=self.device)
        self._loss(translation.Batch(tokens, torch.full(size[1:], size[0]), tokens)).backward()
        self.model.zero_grad(set_to_none=True)

    def batch(self) -> translation.Batch:
        source, lengths, target = self._batches.next()
        # Lengths stay on the CPU, where packing wants them. Targets count less their first piece, which is given.
        self._pieces += int(lengths.sum()) + int((target[1:] != translation.PAD).sum())
        self._sentences += len(lengths)
        return translation.Batch(source.to(self.device), lengths, target.to(self.device))

    def train(self, batch: translation.Batch) -> torch.Tensor:
        """Learn from a batch; return the loss per pair `[]`."""
        loss = self._loss(batch)
        self.update(loss, self.optimizer, self.options["grad_clip"], self.model.parameters())
        return loss

    def _loss(self, batch: translation.Batch) -> torch.Tensor:
        from ..models.gnmt import label_smoothing_loss

        with self.autocast():
            logits = self.model(batch.source, batch.lengths, batch.target[:-1])
        following = batch.target[1:].flatten()
        total = label_smoothing_loss(logits.flatten(0, 1).float(), following, self.options["smoothing"])
        return total / batch.target.size(1)

    def metrics(self) -> dict[str, float]:
        return {"pieces_per_sentence": self._pieces / self._sentences} if self._sentences else {}

    def provenance(self) -> dict[str, Any]:
        sizes = ("hidden_size", "num_layers", "dropout", "smoothing", "max_length_train")
        return {
            "data": {**self.pairs.origin.record(), "vocab_size": self.pairs.vocab_size},
            "model": {"type": "GNMT", **{name: self.options[name] for name in sizes}},
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "optimizer": f"Adam, lr {self.options['lr']}, gradients clipped at {self.options['grad_clip']}",
        }
