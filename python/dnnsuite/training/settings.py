# SPDX-License-Identifier: MIT
"""Keys of a training configuration, SC20's with its defaults and those that this package adds, and files of named
configurations: the one that ships, and those of a user in YAML or JSON.
"""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from .. import jobs
from .._runs.words import truth
from ..errors import Error, InvalidArgument, Unavailable, check_choice, did_you_mean, reason, some_of

MODELS = ("resnet50",)
SCHEDULES = ("plateau", "constant", "tbd-pytorch", "tbd-tf2")
AMP_DTYPES = ("auto", "bf16", "fp16")
LR_SCALINGS = ("none", "sqrt", "linear")
_DATA = ("auto", "real", "synthetic")
_QUICK_LR = 0.02  # a ResNet-50 without warm-up learns at it from its first steps


def _key(default: Any, meaning: str, **limits: Any) -> Any:
    return field(default=default, metadata={"meaning": meaning, **limits})


@dataclass(frozen=True)
class Settings:
    """Settings of one training run. A mistyped key is refused, with the nearest name.

    Keys above `seed` are those of SC20. `dnnsuite train --show` prints all of them with their values.

    >>> from dnnsuite import training
    >>> training.Settings(lr=0.05).changed({"batch_size": 512}).batch_size
    512
    """

    lr: float = _key(0.1, "learning rate", at_least=0)
    momentum: float = _key(0.9, "momentum of SGD", at_least=0)
    weight_decay: float = _key(5e-4, "weight decay of SGD", at_least=0)
    lr_warmup_epochs: int = _key(0, "number w of warm-up epochs; epoch e < w has learning rate lr·(e+1)/w", at_least=0)
    cifar100_mean: tuple[float, ...] = _key(
        (0.5070751592371323, 0.48654887331495095, 0.4409178433670343), "subtracted from red, green, blue", size=3
    )
    cifar100_std: tuple[float, ...] = _key(
        (0.2673342858792401, 0.2564384629170883, 0.27615047132568404), "divides red, green, blue", size=3
    )
    data_path: str | None = _key("./data", "folder of the data sets; --dataroot overrides it")
    rnd_rotation_angle: float = _key(15.0, "largest rotation of training pictures, degrees", at_least=0)
    num_data_workers: int = _key(6, "processes that prepare batches; with 0 the training process does it", at_least=0)
    num_classes: int = _key(100, "number of classes", at_least=1)
    max_epochs: int = _key(100, "largest number of epochs", at_least=1)
    batch_size: int = _key(128, "pictures in a step, over all processes", at_least=1)
    valid_batch_size_per_gpu: int = _key(128, "pictures in a validation batch, for each process", at_least=1)
    log_to_screen: bool = _key(True, "print the log, which is in train.log in any case")
    log_to_tensorboard: bool = _key(True, "write tb_logs if tensorboard is installed")
    save_checkpoint: bool = _key(True, "write checkpoint.pt after each epoch")
    log_freq: int = _key(20, "iterations between two log lines", at_least=1)
    enable_amp: bool = _key(False, "autocast to amp_dtype")
    enable_nhwc: bool = _key(False, "channels-last memory format")
    enable_extra_opts: bool = _key(False, "fused SGD, gradients set to None, cuDNN autotuning")
    enable_profiling: bool = _key(False, "NVTX ranges and CUDA's profiler control in one epoch")
    profiling_epoch_start: int = _key(2, "the profiled epoch, counted from 1", at_least=1)
    profiling_iters_per_epoch: int = _key(100, "iterations in every epoch while profiling", at_least=1)
    seed: int = _key(0, "seed of parameters, order and augmentation", at_least=0)
    data: str = _key("auto", "auto, real or synthetic", among=_DATA)
    model: str = _key("resnet50", ", ".join(MODELS), among=MODELS)
    width: int = _key(64, "channels of the model's first convolution", at_least=1)
    image_size: int = _key(0, "pixels of a side; 0: 32, or 224 for a folder of classes", at_least=0)
    amp_dtype: str = _key("auto", "bf16, fp16 (with a loss scaler) or auto: bf16 on a CPU", among=AMP_DTYPES)
    enable_compile: bool = _key(False, "torch.compile")
    schedule: str = _key("plateau", ", ".join(SCHEDULES), among=SCHEDULES)
    lr_scaling: str = _key("none", "multiply lr by (batch_size / 128) or its square root", among=LR_SCALINGS)
    drop_last: bool = _key(True, "leave out the batch at the end of an epoch that is not full")
    max_iters_per_epoch: int = _key(0, "end an epoch after so many iterations; 0: never", at_least=0)
    max_train_samples: int = _key(0, "of the training part; 0: all", at_least=0)
    max_valid_samples: int = _key(0, "of the validation part; 0: all", at_least=0)
    checkpoint_iters: int = _key(0, "also save after so many iterations within an epoch; 0: never", at_least=0)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], where: str = "") -> Settings:
        """Make settings from these keys, with the others at their defaults.

        Args:
            values: values from a YAML or JSON file, or texts from a command line.
            where: text with which messages begin, for example the name of a file.

        Raises:
            InvalidArgument: a key is unknown (the nearest is named), or its value is refused.
        """
        return cls().changed(values, where)

    def changed(self, values: Mapping[str, Any], where: str = "") -> Settings:
        """Return a copy with some keys changed. It raises the same exceptions as :meth:`from_mapping`."""
        prefix = f"{where}: " if where else ""
        known = {each.name: each for each in fields(self)}
        hints = typing.get_type_hints(type(self))
        found = {}
        for key, value in values.items():
            if key not in known:
                hint = did_you_mean(key, known) or f"; the keys are {some_of(known, '`dnnsuite train --show`')}"
                raise InvalidArgument(f"{prefix}unknown key {key!r}{hint}")
            made = converted(prefix + key, value, hints[key])
            _check(prefix + key, made, known[key].metadata)
            found[key] = made
        return replace(self, **found)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    def quick(self) -> Settings:
        """Return a version of this configuration that learns, and ends within a minute on two cores.

        It has an eighth of the width, little data, and a learning rate for that number of steps.
        """
        made = replace(
            self,
            width=max(1, self.width // 8),
            max_epochs=4,
            max_iters_per_epoch=48,
            lr_warmup_epochs=min(self.lr_warmup_epochs, 1),
            batch_size=min(self.batch_size, 32),
            valid_batch_size_per_gpu=min(self.valid_batch_size_per_gpu, 64),
            num_data_workers=0,
            image_size=min(self.image_size or 32, 64),
            max_valid_samples=256,
            log_freq=min(self.log_freq, 4),
            profiling_iters_per_epoch=min(self.profiling_iters_per_epoch, 8),
        )
        return replace(made, lr=made.lr * _QUICK_LR / made.peak_lr)

    @property
    def peak_lr(self) -> float:
        """The learning rate after warm-up: `lr`, scaled for the batch size by `lr_scaling` or by the rule of TBD's
        schedules."""
        if self.schedule.startswith("tbd-"):
            return self.lr * self.batch_size / 256
        ratio = self.batch_size / 128
        return self.lr * {"none": 1.0, "sqrt": math.sqrt(ratio), "linear": ratio}[self.lr_scaling]


def describe() -> list[tuple[str, str, str]]:
    """Return (key, default as text, meaning) of every key."""
    return [(each.name, str(each.default), each.metadata["meaning"]) for each in fields(Settings)]


def converted(key: str, value: Any, wanted: Any) -> Any:
    """Convert `value`, a file's value or a text, to the type of `wanted`.

    Raises:
        InvalidArgument: it cannot be converted.
    """
    if isinstance(wanted, types.UnionType):
        if value is None or value == "None":
            return None
        wanted = next(each for each in typing.get_args(wanted) if each is not types.NoneType)
    if typing.get_origin(wanted) is tuple:
        parts = value.strip("[]() ").split(",") if isinstance(value, str) else value
        if not isinstance(parts, (list, tuple)):
            raise InvalidArgument(f"{key} is {value!r}: not a list of numbers")
        return tuple(_number(key, part, float) for part in parts)
    if wanted is bool:
        return _truth(key, value)
    if wanted in (int, float):
        return _number(key, value, wanted)
    if not isinstance(value, str):
        raise InvalidArgument(f"{key} is {value!r}: not a text")
    return value


def _truth(key: str, value: Any) -> bool:
    found = truth(str(value))
    if found is None:
        raise InvalidArgument(f"{key} is {value!r}: neither true nor false")
    return found


def _number(key: str, value: Any, kind: type) -> Any:
    try:
        if isinstance(value, bool):
            raise ValueError(value)
        number = float(value)
        if not math.isfinite(number) or (kind is int and number != int(number)):
            raise ValueError(value)
    except (TypeError, ValueError):
        raise InvalidArgument(f"{key} is {value!r}: not {'a whole' if kind is int else 'a'} number") from None
    return kind(value) if kind is int and not isinstance(value, str) else kind(number)


def _check(key: str, value: Any, limits: Mapping[str, Any]) -> None:
    if "at_least" in limits and value < limits["at_least"]:
        raise InvalidArgument(f"{key} is {value}: must be at least {limits['at_least']}")
    if "among" in limits:
        check_choice(f"{key} is", value, limits["among"])
    if "size" in limits and len(value) != limits["size"]:
        raise InvalidArgument(f"{key} has {len(value)} numbers; it takes {limits['size']}")


_FOLDER = Path(__file__).parent / "configurations"
SHIPPED = _FOLDER / "sc20.json"  # the sixteen of SC20's tutorial
_NAMED = ("sc20", "imagenet-resnet50")  # files that ship and may be given by these names


def configurations(path: str | Path = SHIPPED) -> dict[str, Settings]:
    """Return every configuration in a file, by name.

    Args:
        path: a YAML file (with anchors, merges, and tags such as `!!float`) or a JSON file that maps names to keys.
            `sc20` and `imagenet-resnet50` (TBD's settings) are included.

    Raises:
        InvalidArgument: the file is missing or damaged, or a key in it is unknown or has an invalid value.
        Unavailable: the file is YAML, and PyYAML is not installed.

    >>> from dnnsuite import training
    >>> list(training.configurations("sc20"))[:3]
    ['default', 'bs128', 'bs256']
    """
    named = _read(Path(path))
    return {name: Settings.from_mapping(keys, f"{path}: {name}") for name, keys in named.items()}


def configuration(name: str, path: str | Path = SHIPPED) -> Settings:
    """Return one configuration from a file.

    Args:
        name: name of the configuration.
        path: file, see :func:`configurations`.

    Raises:
        InvalidArgument: the file has no configuration of this name, or is damaged.

    >>> from dnnsuite import training
    >>> training.configuration("bs256").batch_size
    256
    """
    named = _read(Path(path))
    if name not in named:
        file = path if path != SHIPPED else SHIPPED.stem
        raise InvalidArgument(
            f"{file} has no configuration {name!r}{did_you_mean(name, named)}; it has {some_of(named, '--list')}"
        )
    return Settings.from_mapping(named[name], f"{path}: {name}")


def is_job(name: str) -> bool:
    """True if a workload has the name, and no file of configurations."""
    return name in jobs.names() and name not in _NAMED


def overrides(texts: Sequence[str]) -> dict[str, str]:
    """Parse `key=value` arguments into a mapping.

    Raises:
        InvalidArgument: one is not of that form, or a key is given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InvalidArgument(f"{text!r} is not key=value, e.g. lr=0.05")
        if key in found:
            raise InvalidArgument(f"{key} is given twice: {found[key]!r} and {value!r}")
        found[key] = value
    return found


def _read(path: Path) -> Mapping[str, Mapping[str, Any]]:
    if str(path) in _NAMED:
        path = _FOLDER / f"{path}.json"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = did_you_mean(str(path), [*_NAMED, *jobs.names()])
        way = "" if hint or path.suffix else "; name a job (`dnnsuite list`), or a configuration with --config (--list)"
        raise InvalidArgument(f"{path} cannot be read{hint}: {reason(error)}{way}") from error
    try:
        content = json.loads(text) if path.suffix == ".json" else _yaml(text)
    except Error:
        raise
    except Exception as error:  # PyYAML raises errors of its own, and what a tag's constructor raises
        raise InvalidArgument(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(content, Mapping) or not content:
        raise InvalidArgument(f"{path} holds no configurations: it should map names to keys")
    for name, keys in content.items():
        if not isinstance(name, str) or not isinstance(keys, Mapping):
            raise InvalidArgument(f"{path}: {name!r} is not a configuration: it should map keys to values")
    return content


def _yaml(text: str) -> Any:
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise Unavailable("PyYAML, which reads YAML", "this Python", "pip install dnnsuite[training]") from error
    return yaml.safe_load(text)
