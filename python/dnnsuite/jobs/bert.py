# SPDX-License-Identifier: MIT
"""Masked-language-model training of a small BERT, the first workload of HFTA's throughput study (MLSys 2021)."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import torch

from .. import _fuse, data, models, nn, optim
from .._step import StepRunner, SubmittedStep
from ._fused_job import FusedJob
from ._separate import Tolerance, compare, share_masks, update_error
from ._workload import JobConfig, option, register

_MODEL = {"emsize": 128, "nhid": 512, "nlayers": 8, "nhead": 8, "dropout": 0.1}
_DATA = {"bptt": 32, "vocab_size": 8192}
_TOLERANCE = {"fp32": Tolerance(loss=1e-4, update=1e-2), "amp": Tolerance(loss=3e-2, update=0.3)}


@register("bert")
class BertJob(FusedJob):
    """HFTA's sizes: width 128, feed-forward 512, 8 layers, 8 heads, 32 tokens, batch 32; Adadelta, StepLR by epoch.

    HFTA's script reads `--emsize 128` but builds its network from `--nhid` alone, 512 wide; here each names
    what it says.
    """

    description = "BERT masked-language model, 8 layers of 128, Adadelta + StepLR, on text"
    unit = "sequences"

    def __init__(self, config: JobConfig) -> None:
        super().__init__(config)
        option(config.options, [*_MODEL, *_DATA], self.name)
        self._options = {**_MODEL, **_DATA, **config.options}
        # The middle of the ranges that `hyperparameters` draws from.
        defaults = {"lr": 1.0, "gamma": 0.7, "step_size": 10}
        self._hyper = {k: list(config.hyper.get(k, [v] * config.models)) for k, v in defaults.items()}
        option(config.hyper, list(defaults), self.name)
        self._runner: StepRunner | None = None
        self._last: SubmittedStep | torch.Tensor | None = None
        self._iteration = 0

    @classmethod
    def preset(cls, name: str, device: str) -> dict[str, Any]:
        paper = {"epochs": 5, "iters_per_epoch": 1000, "repeats": 3, "max_B": None, "max_num_Bs": 10}
        quick = {"epochs": 3, "iters_per_epoch": 4, "repeats": 3, "max_B": 4, "max_num_Bs": 4}
        quick_cuda = {"epochs": 3, "iters_per_epoch": 50, "repeats": 3, "max_B": None, "max_num_Bs": 6}
        return paper if name == "paper" else quick_cuda if device.startswith("cuda") else quick

    @classmethod
    def hyperparameters(cls, generator: random.Random, models: int) -> dict[str, list[float]]:
        """HFTA's ranges: lr from U(0.1, 10), gamma from U(0.3, 0.99), step_size a whole number from U(3, 20)."""
        return {
            "lr": [generator.uniform(0.1, 10.0) for _ in range(models)],
            "gamma": [generator.uniform(0.3, 0.99) for _ in range(models)],
            "step_size": [int(generator.uniform(3, 20)) for _ in range(models)],
        }

    def setup(self) -> None:
        config = self.config
        if config.threads:
            torch.set_num_threads(config.threads)
        self._load_data()
        built = [self.build(config.seed + i) for i in range(config.models)]
        if config.B == 0:
            self._setup_plain(built[0])
        else:
            self._setup_array(built)

    def _load_data(self) -> None:
        self.corpus = data.text.load(
            self.config.data,
            self.config.dataroot,
            vocab_size=self._options["vocab_size"],
            seed=self.config.data_seed,
        )
        self._batches = data.mlm.MaskedLM(
            self.corpus, self.config.batch_size, self._options["bptt"], seed=self.config.data_seed
        )

    def build(self, seed: int) -> models.BERT:
        """The plain torch model that starts from `seed`."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            sizes = {name: self._options[name] for name in _MODEL}
            model = models.BERT(torch.nn, self.corpus.vocab_size, max_len=self._options["bptt"], **sizes)
        return model.to(self.config.device)

    def _setup_plain(self, model: torch.nn.Module) -> None:
        self.model = model
        torch.manual_seed(self.config.seed)
        self._optimizer: Any = torch.optim.Adadelta(model.parameters(), lr=self._hyper["lr"][0])
        self._schedule: Any = torch.optim.lr_scheduler.StepLR(
            self._optimizer, int(self._hyper["step_size"][0]), self._hyper["gamma"][0]
        )
        self._scaler = self._make_scaler()

    def _setup_array(self, built: list[models.BERT]) -> None:
        self.model = _fuse.fuse(built, seeds=[self.config.seed + i for i in range(self.config.B)])
        self._optimizer = optim.Adadelta(self.model.parameters(), lr=self._hyper["lr"])
        self._schedule = optim.lr_scheduler.StepLR(
            self._optimizer, self._hyper["step_size"], self._hyper["gamma"]
        )
        self._runner = StepRunner(
            self.model,
            self._optimizer,
            self._array_loss,
            threads=self.config.threads,
            scaler=self._make_scaler(),
        )

    def _make_scaler(self) -> torch.amp.GradScaler | None:
        half = self._autocast_dtype() == torch.float16
        return torch.amp.GradScaler(self.config.device) if half else None

    def _autocast_dtype(self) -> torch.dtype | None:
        """bfloat16 where the GPU computes in it, else float16; None in fp32."""
        if self.config.precision != "amp":
            return None
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        dtype = self._autocast_dtype()
        return torch.autocast("cuda", dtype=dtype) if dtype else contextlib.nullcontext()

    def _array_loss(
        self, array: torch.nn.Module, tokens: torch.Tensor, positions: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        """`[b]` losses of the b models in `array`."""
        with self._autocast():
            logits = array(tokens, positions)
        return nn.functional.cross_entropy(logits.float(), targets.flatten(1))

    def _plain_loss(
        self, model: torch.nn.Module, tokens: torch.Tensor, positions: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        with self._autocast():
            logits = model(tokens, positions)
        return torch.nn.functional.cross_entropy(logits.float(), targets.flatten())

    def _batch(self, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Batch `index` on the device: tokens `[N, L]`, masked positions `[N, P]` and what stood there `[N, P]`."""
        batch = self._batches.batch(index)
        device = self.config.device
        inputs, positions, targets = (x.to(device) for x in (batch.inputs, batch.positions, batch.targets))
        return inputs, positions, targets

    def step(self) -> None:
        batch = self._batch(self._iteration)
        self._iteration += 1
        if self._runner is not None:
            self._last = self._runner.step(*(_fuse.stack(x, self.config.B) for x in batch))
            return
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._plain_loss(self.model, *batch)
        if self._scaler is None:
            loss.backward()
            self._optimizer.step()
        else:
            self._scaler.scale(loss).backward()
            self._scaler.step(self._optimizer)
            self._scaler.update()
        self._last = loss.detach()

    def synchronize(self) -> None:
        if self._runner is not None:
            self._runner.synchronize()
        if self.config.device.startswith("cuda"):
            torch.cuda.synchronize()

    def end_epoch(self) -> None:
        self._schedule.step()

    def losses(self) -> list[float]:
        if self._last is None:
            return []
        last = self._last.losses() if isinstance(self._last, SubmittedStep) else self._last.reshape(1)
        return [float(value) for value in last]

    def provenance(self) -> dict[str, Any]:
        per_model = sum(p.numel() for p in self.model.parameters()) // self.config.models
        dtype = self._autocast_dtype()
        return {
            "data": {
                "source": self.corpus.source,
                "licence": self.corpus.licence,
                "sha256": self.corpus.sha256,
                "tokens": len(self.corpus.tokens),
                "vocab_size": self.corpus.vocab_size,
            },
            "model": {name: self._options[name] for name in (*_MODEL, "bptt")},
            "parameters_per_model": per_model,
            "optimizer": "Adadelta",
            "schedule": "StepLR",
            "autocast": str(dtype).removeprefix("torch.") if dtype else None,
            "hyper": self._hyper,
        }

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()

    @classmethod
    def check_equality(cls, config: JobConfig, steps: int = 3) -> dict[str, Any]:
        """The fused array against `config.B` separate torch models over the first `steps`.

        Same seeds, data, hyper-parameters and dropout masks; torch's layers and `torch.optim.Adadelta` on the other
        side. Passed if no loss, and no model's whole update, differs by more than the tolerance.
        """
        job = cls(config)
        job.setup()
        try:
            fused = []
            for _ in range(steps):
                job.step()
                fused.append(job.losses())
            alone = [job._train_alone(i, steps) for i in range(config.B)]
        finally:
            job.close()
        separate = [list(row) for row in zip(*(losses for losses, _ in alone), strict=True)]
        record = compare(fused, separate, [error for _, error in alone], _TOLERANCE[config.precision])
        return {
            **record,
            "method": "torch.nn layers and torch.optim.Adadelta, one model at a time, same dropout masks",
        }

    def _train_alone(self, index: int, steps: int) -> tuple[list[float], float]:
        """Model `index` trained by torch alone: its losses over the first steps, and how far the array's is from it."""
        seed = self.config.seed + index
        model = self.build(seed)
        start = [p.detach().clone() for p in model.parameters()]
        share_masks(model, self.model, seed)
        optimizer = torch.optim.Adadelta(model.parameters(), lr=self._hyper["lr"][index])
        losses = []
        for step in range(steps):
            optimizer.zero_grad()
            loss = self._plain_loss(model, *self._batch(step))
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        fused = [p.detach()[index] for p in self.model.parameters()]
        return losses, update_error(fused, [p.detach() for p in model.parameters()], start)
