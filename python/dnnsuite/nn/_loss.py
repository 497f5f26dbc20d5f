# SPDX-License-Identifier: MIT
"""Losses per model: one value for each, never a mean over all models.

Each takes the arguments of torch's class. Inputs are `[B, N, ...]` and the result is `[B]` (`[B, N, ...]` with
`reduction="none"`), so `loss.sum().backward()` gives each model the gradient that it would have alone. A numeric
argument may be a list with one value per model; a weight may be a list of tensors, one per model. Targets may be shared
by all models (`dnnsuite.stack`). `loss(input, target, sample_weight=w)` with w `[B, N]`, bool or floating, weights the
samples: pad batches of different sizes with samples of weight 0.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from .._shown import shown
from ..errors import InvalidArgument
from . import functional
from ._reduction import legacy
from .array_module import ArrayModule, merge_arguments, per_model
from .model_tensor import physical

_LEGACY = ("size_average", "reduce")
LossT = TypeVar("LossT", bound="Loss")


class Loss(ArrayModule):
    """Base of the losses: a subclass is named after its class of torch, whose arguments it has.

    Keywords of a subclass: `function` computes the losses; numbers named in `per_model_lists` may differ; tensors named
    in `weights` are buffers `[B, ...]`, with `class_weights` `[C]` or `[B, C]`; `reductions` are additional ones.
    """

    function: ClassVar[Callable[..., Tensor]]
    weights: ClassVar[tuple[str, ...]] = ()
    class_weights: ClassVar[bool] = False
    reductions: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *arguments: Any, B: int, **keywords: Any) -> None:
        super().__init__(B)
        bound = self._signature().bind(*arguments, **keywords)
        bound.apply_defaults()
        options = bound.arguments
        given = options.get("size_average"), options.get("reduce"), options["reduction"]
        options["reduction"] = legacy(*given, *self.reductions)
        for name in self._option_names:
            if name in self.weights:
                self.register_buffer(name, self._stacked(name, options[name]))
            else:
                setattr(self, name, options[name])

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute: numbers and weights may be one for all models or one per model."""
        if name in self.per_model_lists:
            value = per_model(physical(value), self.B, name)
        elif name in self.weights:
            value = self._stacked(name, value)
        super().__setattr__(name, value)

    @classmethod
    def _signature(cls) -> inspect.Signature:
        return inspect.signature(cls.torch_class)

    _option_names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **attributes: Any) -> None:
        """Read torch's signature once per class: in each forward it would take as long as the loss."""
        super().__init_subclass__(**attributes)
        cls._option_names = tuple(name for name in cls._signature().parameters if name not in _LEGACY)

    def _stacked(self, name: str, value: Tensor | Sequence[Tensor | None] | None) -> Tensor | None:
        """Stack a weight for all models, or a list with one or None (all ones) per model, to `[B, ...]`."""
        if isinstance(value, Tensor):
            if self.class_weights and value.dim() == 2:
                if len(value) != self.B:
                    raise InvalidArgument(f"{name} {list(value.shape)} has no row for each of {self.B} models")
                return value.clone()
            return value.expand(self.B, *value.shape).clone()
        given = next((w for w in value or () if w is not None), None)
        if value is None or given is None:
            return None
        if len(value) != self.B:
            raise InvalidArgument(f"{name} has {len(value)} tensors for {self.B} models")
        return torch.stack([torch.ones_like(given) if w is None else w for w in value])

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        arguments = {name: getattr(module, name) for name in cls._option_names}
        if isinstance(module, ArrayModule):
            arguments |= {name: [None] * module.B for name in cls.weights if arguments[name] is None}
        return arguments

    @classmethod
    def per_model_arguments(cls) -> tuple[str, ...]:
        return (*cls.per_model_lists, *cls.weights)

    @classmethod
    def from_models(cls: type[LossT], models: Sequence[torch.nn.Module]) -> LossT:
        array = cls(**merge_arguments(cls, models), B=len(models))  # the weights are arguments
        array.train(models[0].training)
        return array

    def to_model(self, index: int) -> torch.nn.Module:
        arguments = self.arguments_of(self)
        for name in self.per_model_arguments():
            value = arguments[name][index]
            arguments[name] = value.clone() if isinstance(value, Tensor) else value
        return type(self).torch_class(**arguments).train(self.training)

    def extra_repr(self) -> str:
        values = {name: getattr(self, name) for name in self._option_names if name not in self.weights}
        texts = {
            n: shown(v) if n in self.per_model_lists and isinstance(v, list) else repr(v) for n, v in values.items()
        }
        return ", ".join(f"{name}={text}" for name, text in (texts | {"B": str(self.B)}).items())

    def forward(self, *inputs: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        for x in inputs:
            if isinstance(x, Tensor) and (x.dim() < 1 or len(x) != self.B):
                raise InvalidArgument(
                    f"{type(self).__name__} holds B={self.B} models and takes [B, ...] with the model in dimension 0; "
                    f"got {list(x.shape)}. What all models share is dnnsuite.stack(x, B={self.B}), which copies nothing"
                )
        options = {name: getattr(self, name) for name in self._option_names}
        if sample_weight is not None:
            options["sample_weight"] = sample_weight
        return type(self).function(*inputs, **options)


class CrossEntropyLoss(
    Loss,
    function=functional.cross_entropy,
    per_model_lists=("label_smoothing",),
    weights=("weight",),
    class_weights=True,
):
    """`torch.nn.CrossEntropyLoss` for B models: logits `[B, N, C]` with class indices `[B, N]`.

    Targets may also be probabilities of the classes, `[B, N, C]`. The mean of each model is over its own samples whose
    target is not `ignore_index`. As in torch, further dimensions follow the class: `[B, N, C, d1, ...]`. `weight` is
    `[C]`, or `[B, C]` with a row for each model.

    >>> import torch
    >>> from dnnsuite import nn
    >>> losses = nn.CrossEntropyLoss(B=3)(torch.zeros(3, 8, 10), torch.zeros(3, 8, dtype=torch.long))
    >>> [round(value, 3) for value in losses.tolist()]
    [2.303, 2.303, 2.303]
    """

    def __init__(self, *arguments: Any, B: int, **keywords: Any) -> None:
        super().__init__(*arguments, B=B, **keywords)
        if not all(0.0 <= value <= 1.0 for value in self.label_smoothing):
            raise InvalidArgument(f"label_smoothing must be between 0 and 1, got {self.label_smoothing}")

    label_smoothing: list[float]


class NLLLoss(Loss, function=functional.nll_loss, weights=("weight",), class_weights=True):
    """`torch.nn.NLLLoss` for B models: log-probabilities `[B, N, C, ...]` with class indices `[B, N, ...]`.

    `weight` is `[C]` or `[B, C]`.
    """


class NLLLoss2d(NLLLoss):
    """torch's old name of `NLLLoss` for images."""

    @classmethod
    def _signature(cls) -> inspect.Signature:
        return inspect.signature(torch.nn.NLLLoss)


class BCELoss(Loss, function=functional.binary_cross_entropy, weights=("weight",)):
    """`torch.nn.BCELoss` for B models: probabilities `[B, N, ...]` with targets between 0 and 1."""


class BCEWithLogitsLoss(Loss, function=functional.binary_cross_entropy_with_logits, weights=("weight", "pos_weight")):
    """`torch.nn.BCEWithLogitsLoss` for B models: logits `[B, N, ...]` with targets between 0 and 1."""


class MSELoss(Loss, function=functional.mse_loss):
    """`torch.nn.MSELoss` for B models: squared differences of two `[B, N, ...]`."""


class L1Loss(Loss, function=functional.l1_loss):
    """`torch.nn.L1Loss` for B models: absolute differences of two `[B, N, ...]`."""


class SmoothL1Loss(Loss, function=functional.smooth_l1_loss, per_model_lists=("beta",)):
    """`torch.nn.SmoothL1Loss` for B models: squares of differences below `beta`, lines above; `[B, N, ...]`."""


class HuberLoss(Loss, function=functional.huber_loss, per_model_lists=("delta",)):
    """`torch.nn.HuberLoss` for B models: half squares of differences below `delta`, lines above; `[B, N, ...]`."""


class KLDivLoss(Loss, function=functional.kl_div, reductions=("batchmean",)):
    """`torch.nn.KLDivLoss` for B models: log-probabilities `[B, N, ...]` with probabilities, or their logarithms."""


class PoissonNLLLoss(Loss, function=functional.poisson_nll_loss, per_model_lists=("eps",)):
    """`torch.nn.PoissonNLLLoss` for B models: counts `[B, N, ...]` under Poisson distributions."""


class GaussianNLLLoss(Loss, function=functional.gaussian_nll_loss, per_model_lists=("eps",)):
    """`torch.nn.GaussianNLLLoss` for B models: means, targets and variances of normal distributions, `[B, N, ...]`."""


class HingeEmbeddingLoss(Loss, function=functional.hinge_embedding_loss, per_model_lists=("margin",)):
    """`torch.nn.HingeEmbeddingLoss` for B models: distances `[B, N, ...]` with targets 1 or -1."""


class SoftMarginLoss(Loss, function=functional.soft_margin_loss):
    """`torch.nn.SoftMarginLoss` for B models: scores `[B, N, ...]` with targets 1 or -1."""


class MultiMarginLoss(
    Loss,
    function=functional.multi_margin_loss,
    per_model_lists=("margin", "p"),
    weights=("weight",),
    class_weights=True,
):
    """`torch.nn.MultiMarginLoss` for B models: scores `[B, N, C]` with class indices `[B, N]`.

    `weight` is `[C]` or `[B, C]`.
    """


class MultiLabelMarginLoss(Loss, function=functional.multilabel_margin_loss):
    """`torch.nn.MultiLabelMarginLoss` for B models: scores `[B, N, C]` with lists of classes.

    The lists are `[B, N, C]` too, and end at the first -1.
    """


class MultiLabelSoftMarginLoss(Loss, function=functional.multilabel_soft_margin_loss, weights=("weight",)):
    """`torch.nn.MultiLabelSoftMarginLoss` for B models: scores `[B, N, C]` with 0 or 1 for each class."""


class CosineEmbeddingLoss(Loss, function=functional.cosine_embedding_loss, per_model_lists=("margin",)):
    """`torch.nn.CosineEmbeddingLoss` for B models: two vectors per sample, `[B, N, D]`, with targets 1 or -1."""


class MarginRankingLoss(Loss, function=functional.margin_ranking_loss, per_model_lists=("margin",)):
    """`torch.nn.MarginRankingLoss` for B models: two scores per sample, `[B, N]`, and 1 or -1 for the higher one."""


class TripletMarginLoss(Loss, function=functional.triplet_margin_loss, per_model_lists=("margin", "p", "eps")):
    """`torch.nn.TripletMarginLoss` for B models: anchors, positives and negatives, `[B, N, D]` each."""


class TripletMarginWithDistanceLoss(
    Loss, function=functional.triplet_margin_with_distance_loss, per_model_lists=("margin",)
):
    """`TripletMarginLoss` with a distance function of the caller, which gets `[N, D]` of one model at a time."""


class CTCLoss(Loss, function=functional.ctc_loss):
    """`torch.nn.CTCLoss` for B models: log-probabilities `[B, T, N, C]` with targets of any alignment.

    Lengths are tensors `[B, N]`. It runs model by model.
    """
