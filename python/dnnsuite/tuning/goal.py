# SPDX-License-Identifier: MIT
"""Goal of a sweep: a metric, its direction, and the best epoch so far; and checks of a sweep's arguments, each of which
refuses a value with a sentence that names it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ..errors import InvalidArgument, did_you_mean

# Words of metrics' names, as they stand between other signs; digits at the end of one do not count. The last word says
# what is measured: a time to an accuracy, or the deviation of one, is neither.
_HIGHER = frozenset((
    "acc", "accuracy", "f", "auc", "auroc", "auprc", "ap", "map", "precision", "recall", "score", "r", "bleu", "rouge",
    "iou", "miou", "dice", "jaccard", "reward", "return", "psnr", "ssim", "ndcg", "mrr", "hits", "elbo", "kappa", "top",
    "mcc", "success", "specificity", "sensitivity", "pearson", "spearman", "likelihood",
))  # fmt: skip
_LOWER = frozenset((  # though one of the others is in the name, too
    "loss", "error", "err", "mse", "rmse", "mae", "mape", "nll", "perplexity", "ppl", "wer", "cer", "fid", "regret",
))  # fmt: skip
_ASIDE = frozenset((  # which part of the data is measured, and how it is averaged
    "", "val", "valid", "validation", "test", "eval", "dev", "train", "held", "out", "mean", "avg", "average", "macro",
    "micro", "weighted", "balanced", "rate", "at", "k", "best", "final", "ema", "total", "percent", "pct",
))  # fmt: skip
_TURNED = frozenset((
    "neg", "negative", "minus", "inverse", "to", "until", "before", "of", "without", "non", "no", "not", "missed",
    "false", "lost", "std", "var", "gap", "drop",
))  # fmt: skip


def sign_of(metric: str | None, goal: str | None) -> float:
    """1.0 where lower is better, -1.0 where higher is: by `goal`, else by the metric's name.

    Raises:
        InvalidArgument: `goal` is neither, or the name does not say what is better.

    >>> from dnnsuite.tuning.goal import sign_of
    >>> sign_of("val_acc", None), sign_of("accumulated_loss", None)
    (-1.0, 1.0)
    """
    if goal not in (None, "min", "max"):
        raise InvalidArgument(f"goal is {goal!r}: give min or max")
    if goal is not None:
        return 1.0 if goal == "min" else -1.0
    if metric in (None, "value"):  # a loss, or the package's word for one number, of which lower is better
        return 1.0
    words = [word.rstrip("0123456789") for word in re.split(r"[^a-z0-9]+", metric.lower())]
    last = next((word for word in reversed(words) if word not in _ASIDE), "")
    plain = not _TURNED.intersection(words) and not re.match(r"\s*1\s*-", metric)
    if plain and (last in _LOWER or (last in _HIGHER and _LOWER.intersection(words))):
        return 1.0
    if plain and last in _HIGHER:
        return -1.0
    hint = did_you_mean(metric, [*_LOWER, *_HIGHER])
    raise InvalidArgument(
        f"the name of the metric {metric!r} does not say what is better{hint}: give goal='min' or 'max'"
    )


def at_least_1(name: str, value: int | None) -> int | None:
    """`value`, if it is a whole number from 1 on, or None."""
    if value is not None:
        check_whole(1, **{name: value})
    return value


def check_whole(least: int, **values: Any) -> None:
    """Refuse a value, by name, that is no whole number from `least` on."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InvalidArgument(f"{name} is a whole number, {least} or more; got {value!r}")


def checked_part(min_delta: Any) -> float:
    """`min_delta`, if it is a number from 0 on."""
    if isinstance(min_delta, bool) or not isinstance(min_delta, (int, float)) or not 0 <= min_delta < math.inf:
        raise InvalidArgument(f"min_delta is a part of the best value, 0 or more; got {min_delta!r}")
    return float(min_delta)


def check_factory(make_model: Any) -> None:
    """Refuse a model, or what cannot be called, in place of a function that makes one."""
    if isinstance(make_model, torch.nn.Module) or not callable(make_model):
        raise InvalidArgument(
            f"make_model is a {type(make_model).__name__}: give a function of the configuration that returns a model"
        )


def check_loss(loss: Any) -> None:
    """Refuse a loss of torch's, which takes the outputs, in place of a function that takes the model."""
    kind = type(loss) if isinstance(loss, torch.nn.Module) else loss
    home = getattr(kind, "__module__", None) or ""
    if home.startswith(("torch.", "dnnsuite.nn")):
        written = f"torch.nn.{kind.__name__}()" if kind is not loss else f"torch.nn.functional.{loss.__name__}"
        raise InvalidArgument(
            f"loss takes the model and its batch, not outputs: loss=lambda model, x, y: {written}(model(x), y)"
        )


def check_evaluate(evaluate: Any) -> None:
    """Refuse a list, which might be batches or one source for each trial."""
    if isinstance(evaluate, list):
        raise InvalidArgument(
            "evaluate is a list, and all trials are measured on the same data: give a tuple of tensors, or a "
            "DataLoader, of a list of batches DataLoader(batches, batch_size=None)"
        )


_BY_DEFAULT = ("loss", "val_loss", "value", "train_loss")


@dataclass(frozen=True)
class Goal:
    """Metric and direction of a search.

    Attributes:
        metric: its name; None means the first that exists of `loss`, `val_loss`, `value` and `train_loss`.
        sign: 1 if lower is better, -1 if higher is.
        patience: epochs without an improvement after which a trial ends; None never.
        min_delta: part by which a value has to improve.
        given: the direction was given, not told by the metric's name.
    """

    metric: str | None
    sign: float
    patience: int | None = None
    min_delta: float = 0.0
    given: bool = False


Key = tuple[float, int, int]  # (value, trial, epoch)


@dataclass
class Best:
    """The best epochs of the best trials, and the weights after them. Of equal values the first trial's counts."""

    kept: dict[int, tuple[Key, dict[str, Any]]] = field(default_factory=dict)  # by trial, the best first
    saved: bool = True

    @property
    def key(self) -> Key:
        """The best of all."""
        return next((key for key, _ in self.kept.values()), (math.inf, -1, -1))

    @property
    def weights(self) -> dict[str, Any] | None:
        """Weights of the best of all; None before there is one."""
        return next((weights for _, weights in self.kept.values()), None)

    def wants(self, key: Key, most: int) -> bool:
        """True if an epoch is among the `most` best, of which each trial has one."""
        if key[1] in self.kept:
            return key < self.kept[key[1]][0]
        return len(self.kept) < most or key < max(own for own, _ in self.kept.values())

    def take(self, key: Key, weights: dict[str, Any], most: int) -> None:
        """Keep an epoch's weights, and no more than so many."""
        self.kept[key[1]] = key, weights
        self.kept = dict(sorted(self.kept.items(), key=lambda one: one[1][0])[:most])
        self.saved = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a file keeps them."""
        others = [[list(key), weights] for key, weights in list(self.kept.values())[1:]]
        return {"key": list(self.key), "weights": self.weights, "others": others}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Best:
        """Read what `to_dict` made."""
        rows = [(found["key"], found["weights"]), *found.get("others", ())]
        return cls({int(n): ((float(value), int(n), int(epoch)), weights) for (value, n, epoch), weights in rows})


def metric_in(metrics: Mapping[str, float], asked: str) -> str:
    """Name that the metric asked for has in an epoch's metrics; for the empty name the default metric.

    Raises:
        InvalidArgument: there is none of this name.
    """
    if not asked:
        return next(name for name in _BY_DEFAULT if name in metrics)
    if asked in metrics:
        return asked
    held_out = asked.removeprefix("val_")  # all but train_loss are of held-out data
    if held_out in metrics:
        return held_out
    more = "; held-out data as evaluate= give loss and acc" if [*metrics] == ["train_loss"] else ""
    raise InvalidArgument(
        f"there is no metric {asked!r}{did_you_mean(asked, metrics)}: training and evaluate gave "
        f"{', '.join(sorted(metrics))}{more}"
    )
