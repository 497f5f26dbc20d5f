# SPDX-License-Identifier: MIT
"""Parts of a sweep, from a declared workload: models, batches, held-out samples, loss, optimizer and schedule, with the
spaces that ship, those of HFHT's two examples, MobileNet and PointNet; and of LoRA on a language model in a folder,
with texts in a file.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch

from .. import data, jobs
from .._files import read_json
from ..adapters import Texts, import_peft
from ..errors import InvalidArgument, Unavailable, did_you_mean, reason, some_of
from ..jobs import JobConfig, Made, Workload
from ..jobs.model_parts import optimizers_of, with_names
from ..jobs.workload import valued
from .space import Config, Range, checked_space, space_from_plain

_ADAM = {
    "lr": {"uniform": [1e-4, 1e-2]},
    "beta1": {"uniform": [0.001, 0.999]},
    "beta2": {"uniform": [0.001, 0.999]},
    "weight_decay": {"uniform": [0.0, 0.5]},
    "gamma": {"uniform": [0.1, 0.9]},
    "step_size": [5, 10, 20, 40],
}
#: HFHT's spaces by the beginning of a job's name: fusible values, then those that only models of equal ones can share.
HFHT: Mapping[str, Mapping[str, Any]] = {
    "mobilenet": {**_ADAM, "batch_size": [1024, 2048], "version": ["v2", "v3l"]},
    "pointnet": {**_ADAM, "batch_size": [8, 16, 32], "feature_transform": [True, False]},
}
#: What is smaller in a first look on a CPU.
_QUICK: Mapping[str, Mapping[str, Any]] = {
    "mobilenet": {"batch_size": [8, 16], "version": ["v3s"]},
    "pointnet": {"batch_size": [8, 16]},
}
_DRAWN = 256  # configurations of a job without a space, by its own sampler, or more where a search begins more


def space_of(workload: Workload, preset: str, seed: int, trials: int = 0) -> dict[str, Range] | list[dict[str, Any]]:
    """HFHT's space of a job, or configurations that the job's own sampler draws, enough for so many `trials`."""
    family = next((name for name in HFHT if workload.name.startswith(name)), None)
    if family is None:
        generator = random.Random(seed)
        return [dict(workload.drawn(generator)) for _ in range(max(_DRAWN, trials))]
    plain = {**HFHT[family], **(_QUICK[family] if preset == "quick" else {})}
    if workload.name == "pointnet_seg":
        plain["batch_size"] = [8, 16]
    return space_from_plain(plain)


def read_space(path: Path) -> dict[str, Range] | list[dict[str, Any]]:
    """Return the space in a YAML or JSON file: ranges by name, or a list of configurations.

    Raises:
        InvalidArgument: the file is empty or damaged; the message names it.
        Unavailable: the file is YAML, and PyYAML is not installed.
    """
    if path.suffix == ".json":
        plain = read_json(path)
    else:
        plain = _read_yaml(path)
    if isinstance(plain, list):
        if not plain or not all(isinstance(config, Mapping) for config in plain):
            raise InvalidArgument(f"{path}: the space is empty, or not a list of configurations")
        return [dict(config) for config in plain]
    return checked_space(space_from_plain(plain or {}, str(path)))


def _read_yaml(path: Path) -> Any:
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise Unavailable(
            f"{path} is YAML, and PyYAML is not installed", remedy="pip install 'dnnsuite[training]'"
        ) from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc,unused-ignore]
        """Loader that reads 1e-3 as a number, as YAML 1.2 does."""

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]?\d+$"), list("-+0123456789"))
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader)
    except (OSError, yaml.YAMLError) as error:
        raise InvalidArgument(f"{path}: {reason(error)}") from error


_VERSIONS = {"v2": "mobilenet_v2", "v3s": "mobilenet_v3_small", "v3l": "mobilenet_v3_large"}
# Batches of a job that nothing was drawn from. They are not in the job, whose content tells searches apart.
_LOADED: WeakKeyDictionary[JobSweep, dict[tuple[int, bool], Any]] = WeakKeyDictionary()
_HELD_OUT = 1_000_000  # index of the first batch for validation, where a job holds no samples out


class Epochs:
    """Batches of a workload, `length` for an epoch; epoch e begins where e - 1 has ended."""

    def __init__(self, batches: Any, batch_size: int, length: int, first: int = 0) -> None:
        self._batches, self.batch_size, self._length, self._first = batches, batch_size, length, first
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Begin here at the next iteration."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        begin = self._first + self._epoch * self._length
        return (tuple(self._batches.batch(begin + i)) for i in range(self._length))


class JobSweep:
    """Arguments of `dnnsuite.sweep` for a declared workload: `sweep(space=..., epochs=3, **job.arguments(3))`.

    Args:
        name: name of a job that was made with `jobs.declare`.
        preset: preset for its sizes, batch size and iterations per epoch.
        device: cpu or cuda.
        options: options of the job, for example `{"width_mult": 0.5}`.
        source, dataroot: the data, like `--data` and `--dataroot` of commands.
        iters_per_epoch, batch_size: values that replace those of the preset.
        seed: seed of the batches.

    Raises:
        InvalidArgument: there is no such job; the message names those that exist.
    """

    def __init__(
        self, name: str, preset: str = "default", device: str = "cpu", options: Mapping[str, Any] | None = None,
        source: str = "auto", dataroot: str | None = None, iters_per_epoch: int | None = None,
        batch_size: int | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        self.workload, options = _workload(name), options or {}
        self._protocol = self.workload.preset(preset, device)
        self._options = {**self.workload.options, **self._protocol["options"], **options}
        if unknown := sorted(set(options) - set(self.workload.options)):
            hint = did_you_mean(unknown[0], self.workload.options)
            raise InvalidArgument(
                f"job {name} has no option {unknown[0]!r}{hint}; it has {', '.join(self.workload.options)}"
            )
        self._config = JobConfig(device=device, data=source, dataroot=dataroot, data_seed=seed)
        self.batch_size = batch_size or self._protocol["batch_size"]
        self.iters_per_epoch = iters_per_epoch or self._protocol["iters_per_epoch"]
        self._loaded: dict[int, Any] = {}
        self._epochs: dict[int, Epochs] = {}
        self._apart = False  # True where held-out batches are other tensors than those of training

    def _batches(self, batch_size: int) -> Any:
        """Batches to train on."""
        if batch_size not in self._loaded:
            found = self._load(batch_size)
            self._options.update(found.sizes)
            self._loaded[batch_size] = found
        return self._loaded[batch_size]

    def _load(self, batch_size: int, held_out: bool = False) -> Any:
        """Load samples once for all searches; batches of them keep what was drawn, and are each search's own."""
        known = _LOADED.setdefault(self, {})
        found = known[batch_size, held_out].again() if (batch_size, held_out) in known else None
        if found is None:
            config = dataclasses.replace(self._config, batch_size=batch_size)
            found = self.workload.batches(config, self._options, held_out)
            if hasattr(found, "again") and (untouched := found.again()) is not None:
                known[batch_size, held_out] = untouched
        return found

    def model(self, config: Config) -> torch.nn.Module:
        """Return the plain model of a configuration, whose names are options and hyper-parameters of the job."""
        self._batches(self.batch_size)  # some sizes are the data's
        own = {name: config.get(name, value) for name, value in self._options.items()}
        if "version" in config:
            return self._mobilenet(config["version"], own)
        return with_names(self.workload.model(own, {**self.workload.hyper, **config}))

    def _mobilenet(self, version: str, own: Mapping[str, Any]) -> torch.nn.Module:
        if version not in _VERSIONS:
            hint = did_you_mean(str(version), _VERSIONS)
            raise InvalidArgument(f"version {version!r} is none of {', '.join(_VERSIONS)}{hint}")
        make = getattr(data.import_torchvision().models, _VERSIONS[version])
        model: torch.nn.Module = make(num_classes=data.cifar.CIFAR10_CLASSES, width_mult=own["width_mult"])
        return model

    def train(self, config: Config) -> Epochs:
        """Return the batches of a trial."""
        size = int(config.get("batch_size", self.batch_size))
        if size not in self._epochs:
            self._epochs[size] = Epochs(self._batches(size), size, self.iters_per_epoch)
        return self._epochs[size]

    def held_out(self, count: int = 4) -> Epochs:
        """Return batches that no trial trains on: the job's held-out samples, or else batches other than those of
        training."""
        size = min(max(self.batch_size, 64), 256)
        if self.workload.held_out is None:
            return Epochs(self._batches(size), size, count, _HELD_OUT)
        trained = self._batches(self.batch_size).batch(0)
        found = self._load(size, held_out=True)
        self._apart = len(found.batch(0)) != len(trained)
        return Epochs(found, size, count)

    def space(self, preset: str, seed: int, count: int) -> dict[str, Range] | list[dict[str, Any]]:
        """Return the job's ranges, or configurations drawn by its own sampler."""
        return space_of(self.workload, preset, seed, count)

    def arguments(self, epochs: int) -> dict[str, Any]:
        """Return the arguments of `dnnsuite.sweep` for trials of at most `epochs` epochs."""
        self._loaded, self._epochs = {}, {}
        self._batches(self.batch_size)
        by_rate = partial(_factor, self.workload, epochs * self.iters_per_epoch)
        by_rate = self._schedule(Made("LambdaLR", {"lr_lambda": by_rate}))
        by_steps = {"scheduler": by_rate, "scheduler_every": "batch"}
        return {
            "make_model": self.model, "train": self.train, "evaluate": self.held_out(), "loss": self.loss,
            "measure": self.measure, "optimizer": self.optimizer, "scheduler": self.scheduler,
            "batch_size": self.batch_size, **({} if self.workload.rate is None else by_steps),
            "after_step": self.workload.after_step, "accumulate": self.workload.accumulate,
        }  # fmt: skip

    @property
    def metric(self) -> str:
        """Name of the workload's metric, `acc` for an accuracy; `loss` if it has none."""
        found = self.workload.metric
        if found is None:
            return "loss"
        return "acc" if found.name == "accuracy" else found.name.replace(" ", "_")

    @property
    def goal(self) -> str:
        """`max` if a larger metric is better, else `min`."""
        return "max" if self.workload.metric and self.workload.metric.better == "more" else "min"

    def check_metric(self, name: str | None) -> None:
        """Refuse a metric that no trial of the job will have.

        Raises:
            InvalidArgument: there is no such metric; the message names those that exist.
        """
        known = tuple(dict.fromkeys(("loss", self.metric, "train_loss")))
        if name is not None and name.removeprefix("val_") not in known:
            raise InvalidArgument(
                f"--metric {name}: job {self.workload.name} has {some_of(known)}{did_you_mean(name, known)}"
            )

    @property
    def optimizer(self) -> tuple[Any, dict[str, Any]]:
        """The optimizer, as a name or a function that makes one with several groups, and its constants. Values of a
        configuration have the names of its arguments."""
        clip = self.workload.clip(self._options)
        more = {} if clip is None else {"max_grad_norm": clip}
        if len(self.workload.groups()) > 1:
            return self._of_groups, more
        made = self.workload.groups()[0].optimizer
        return made.name, {**made.filled(self.workload.hyper), **more}

    def _of_groups(self, parameters: Any, config: Config) -> torch.optim.Optimizer:
        (found,) = optimizers_of(self.workload, {**self.workload.hyper, **config}, parameters)
        return found

    @property
    def scheduler(self) -> Any:
        """The schedule: a name and constants, or a function that returns one of torch's; None if the job has none."""
        return None if self.workload.schedule is None else self._schedule(self.workload.schedule)

    def _schedule(self, made: Made) -> Any:
        if len(self.workload.groups()) > 1:
            return partial(_torchs, made, self.workload.hyper)
        return made.name, made.filled(self.workload.hyper)

    def loss(self, model: Any, *batch: Any) -> torch.Tensor:
        """Return the loss `[]` of one model."""
        of = self.workload.loss
        found: torch.Tensor = valued(of, of(model, *batch), batch)  # type: ignore[operator]
        return found

    def measure(self, model: Any, *batch: Any) -> dict[str, torch.Tensor]:
        """Return the job's metric if it has one, and `loss` if held-out batches have as many tensors as training
        batches."""
        found = {} if self._apart else {"loss": self.loss(model, *batch)}
        if self.workload.metric is not None:
            of = self.workload.metric.of
            found[self.metric] = valued(of, of(model, *batch), batch, trains=False)
        return found


def _workload(name: str) -> Workload:
    kind = jobs.get(name, swept=True)
    workload = getattr(kind, "workload", None)
    if not isinstance(workload, Workload):
        raise InvalidArgument(f"job {name} is not a declared workload, which tune needs: see jobs.declare")
    if len(kinds := dict.fromkeys(group.optimizer.name for group in workload.groups())) > 1:
        raise InvalidArgument(f"job {name} trains by {' and '.join(kinds)}; tune takes jobs of one class of optimizer")
    if not callable(workload.loss):
        raise InvalidArgument(f"job {name} trains {' and '.join(workload.loss)} in turn; tune takes jobs of one loss")
    return workload


def _factor(workload: Workload, steps: int, step: int) -> float:
    """Return a workload's factor of the learning rate in a step."""
    return workload.factor(step, steps)


def _torchs(made: Made, hyper: Mapping[str, Any], optimizer: torch.optim.Optimizer, config: Config) -> Any:
    """Return torch's schedule of one model."""
    return made.make(made.kind(torch.optim.lr_scheduler), optimizer, {**hyper, **config})


#: Ranges where no file has others; names are those of PEFT's LoraConfig, of AdamW, of schedules, and of the data.
LORA_SPACE: Mapping[str, Any] = {
    "r": [4, 8, 16, 32],
    "alpha_over_r": [1, 2, 4],
    "lora_dropout": [0.0, 0.05],
    "target_modules": ["all-linear"],
    "lr": {"loguniform": [1e-5, 1e-2]},
    "batch_size": [2, 4, 8],
}
_SHARE_HELD_OUT = 0.1  # of the texts, where no file has others


class LoraSearch:
    """Arguments of `dnnsuite.sweep` for adapters on the model in a folder.

    Args:
        base: folder of transformers', with a causal language model.
        data: file of JSON lines, as `adapters.Texts` reads it.
        held_out: another, to compare the trials by; None takes a tenth of `data`.
        tokenizer: folder of the tokenizer, or `bytes`; None is the base's folder.

    Raises:
        InvalidArgument: a folder or file is none of these; the message names it.
    """

    metric, goal = "loss", "min"

    def __init__(
        self, base: str | None, data: str, held_out: str | None, tokenizer: str | None, device: str,
        batch_size: int | None, micro_batch: int | None, keep: int, seed: int,
    ) -> None:  # fmt: skip
        if base is None or data == "auto":
            raise InvalidArgument("tune lora needs --base FOLDER, of transformers', and --data FILE.jsonl")
        if not (Path(base) / "config.json").is_file():
            raise InvalidArgument(f"--base {base} has no config.json: give a folder that save_pretrained wrote")
        kind = import_peft().LoraConfig
        import transformers

        self._make_config = functools.partial(peft_config, kind)
        spelled = _read(transformers.AutoTokenizer, tokenizer or base) if tokenizer != "bytes" else None
        texts = Texts(data, spelled)
        self._train, self._held_out = (
            (texts, Texts(held_out, spelled)) if held_out else texts.split(_SHARE_HELD_OUT, seed)
        )  # fmt: skip
        self._base = _read(transformers.AutoModelForCausalLM, base).to(device)
        self._batch_size, self._micro_batch, self._keep = batch_size or 4, micro_batch, keep

    def space(self, *_: Any) -> dict[str, Range]:
        """The ranges that no file gives."""
        return space_from_plain(LORA_SPACE)

    def check_metric(self, name: str | None) -> None:
        """Refuse a metric that no trial will have."""
        if name is not None and name.removeprefix("val_") not in ("loss", "train_loss"):
            raise InvalidArgument(f"--metric {name}: lora has loss, train_loss{did_you_mean(name, ['loss'])}")

    def arguments(self, epochs: int) -> dict[str, Any]:
        """Arguments of `dnnsuite.sweep`; a schedule follows the epochs by itself."""
        return {
            "make_model": self._make_config, "train": self._train, "evaluate": self._held_out, "base": self._base,
            "optimizer": "AdamW", "scheduler": "CosineAnnealingLR", "batch_size": self._batch_size,
            "micro_batch": self._micro_batch, "keep": self._keep,
        }  # fmt: skip


def peft_config(kind: Any, config: Config) -> Any:
    """Return the config of PEFT's of a trial. It knows no data: what a resumed search compares is named once."""
    own = {field.name: config[field.name] for field in dataclasses.fields(kind) if field.name in config}
    if "alpha_over_r" in config:
        own["lora_alpha"] = config["alpha_over_r"] * own.get("r", 8)
    return kind(task_type="CAUSAL_LM", **own)


def _read(kind: Any, folder: str) -> Any:
    try:
        return kind.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, ImportError) as error:
        what = "tokenizer" if "Tokenizer" in kind.__name__ else "causal language model"
        way = ": give its folder by --tokenizer, or --tokenizer bytes" if what == "tokenizer" else ""
        raise InvalidArgument(
            f"{folder} has no {what} that transformers reads ({reason(error).splitlines()[0]}){way}"
        ) from error
