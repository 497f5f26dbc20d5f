# SPDX-License-Identifier: MIT
"""Losses that return one value for each model, never a mean over all models.

Each takes the arguments of torch's class. Inputs are `[B, N, ...]` and the result is `[B]` (`[B, N, ...]` with
`reduction="none"`), so `loss.sum().backward()` gives each model the gradient that it would get if it trained alone. A
numeric argument may be a list with one value per model; a weight may be a list of tensors, one per model. Targets may
be shared by all models (`dnnsuite.stack`). `loss(input, target, sample_weight=w)` weights the samples by w `[B, N]`,
bool or floating: to use batches of different sizes, pad them with samples of weight 0.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from .._shown import shown
from ..errors import InvalidArgument
from . import functional as F
from ._reduction import legacy
from .array_module import ArrayModule, merge_arguments, per_model
from .model_tensor import physical

_LEGACY = ("size_average", "reduce")
LossT = TypeVar("LossT", bound="Loss")


class Loss(ArrayModule):
    """Base of the losses: a subclass is named after its class of torch, whose arguments it has.

    Keywords of a subclass: `function` computes the losses; the numbers that it takes for each model may differ; weights
    are buffers `[B, ...]`, with `class_weights` `[C]` or `[B, C]`; `reductions` are additional ones.
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
        cls.weights = tuple(name for name in cls._option_names if name in ("weight", "pos_weight"))
        own: frozenset[str] = getattr(cls.function, "own_numbers", frozenset())
        cls.per_model_lists = tuple(name for name in cls._option_names if name in own)
        cls.per_model_arguments = (*cls.per_model_lists, *cls.weights)

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
    def from_models(cls: type[LossT], models: Sequence[torch.nn.Module]) -> LossT:
        array = cls(**merge_arguments(cls, models), B=len(models))  # the weights are arguments
        array.train(models[0].training)
        return array

    def to_model(self, index: int) -> torch.nn.Module:
        arguments = self.arguments_of(self)
        for name in self.per_model_arguments:
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


class CrossEntropyLoss(Loss, function=F.cross_entropy, class_weights=True):
    """`torch.nn.CrossEntropyLoss` for B models: logits `[B, N, C]` with class indices `[B, N]`.

    Targets may also be class probabilities, `[B, N, C]`. Each model's mean is over its own samples whose target is not
    `ignore_index`. As in torch, further dimensions come after the classes: `[B, N, C, d1, ...]`. `weight` is `[C]`, or
    `[B, C]` with one row per model.

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


class NLLLoss(Loss, function=F.nll_loss, class_weights=True):
    """`torch.nn.NLLLoss` for B models: log-probabilities `[B, N, C, ...]` with class indices `[B, N, ...]`.

    `weight` is `[C]` or `[B, C]`.
    """


class NLLLoss2d(NLLLoss):
    """torch's old name for `NLLLoss` on images."""

    @classmethod
    def _signature(cls) -> inspect.Signature:
        return inspect.signature(torch.nn.NLLLoss)


def _loss(name: str, function: Callable[..., Tensor], what: str, **attributes: Any) -> Any:
    """Make the loss that is called `name`, of a function, which takes `what`."""
    shown = {"__module__": __name__, "__qualname__": name, "__doc__": f"`torch.nn.{name}` for B models: {what}."}
    kind: Any = type(Loss)
    return kind(name, (Loss,), shown, function=function, **attributes)


BCELoss = _loss("BCELoss", F.binary_cross_entropy, "probabilities `[B, N, ...]` with targets between 0 and 1")
BCEWithLogitsLoss = _loss(
    "BCEWithLogitsLoss", F.binary_cross_entropy_with_logits, "logits `[B, N, ...]` with targets between 0 and 1"
)
MSELoss = _loss("MSELoss", F.mse_loss, "squared differences of two `[B, N, ...]`")
L1Loss = _loss("L1Loss", F.l1_loss, "absolute differences of two `[B, N, ...]`")
SmoothL1Loss = _loss(
    "SmoothL1Loss", F.smooth_l1_loss, "squares of differences below `beta`, lines above; `[B, N, ...]`"
)
HuberLoss = _loss("HuberLoss", F.huber_loss, "half squares of differences below `delta`, lines above; `[B, N, ...]`")
KLDivLoss = _loss(
    "KLDivLoss",
    F.kl_div,
    "log-probabilities `[B, N, ...]` with probabilities, or their logarithms",
    reductions=("batchmean",),
)
PoissonNLLLoss = _loss("PoissonNLLLoss", F.poisson_nll_loss, "counts `[B, N, ...]` under Poisson distributions")
GaussianNLLLoss = _loss(
    "GaussianNLLLoss", F.gaussian_nll_loss, "means, targets and variances of normal distributions, `[B, N, ...]`"
)
HingeEmbeddingLoss = _loss("HingeEmbeddingLoss", F.hinge_embedding_loss, "distances `[B, N, ...]` with targets 1 or -1")
SoftMarginLoss = _loss("SoftMarginLoss", F.soft_margin_loss, "scores `[B, N, ...]` with targets 1 or -1")
MultiMarginLoss = _loss(
    "MultiMarginLoss",
    F.multi_margin_loss,
    "scores `[B, N, C]` with class indices `[B, N]`. `weight` is `[C]` or `[B, C]`",
    class_weights=True,
)
MultiLabelMarginLoss = _loss(
    "MultiLabelMarginLoss",
    F.multilabel_margin_loss,
    "scores `[B, N, C]` with lists of classes. The lists are `[B, N, C]` too, and end at the first -1",
)
MultiLabelSoftMarginLoss = _loss(
    "MultiLabelSoftMarginLoss", F.multilabel_soft_margin_loss, "scores `[B, N, C]` with 0 or 1 for each class"
)
CosineEmbeddingLoss = _loss(
    "CosineEmbeddingLoss", F.cosine_embedding_loss, "two vectors per sample, `[B, N, D]`, with targets 1 or -1"
)
MarginRankingLoss = _loss(
    "MarginRankingLoss", F.margin_ranking_loss, "two scores per sample, `[B, N]`, and 1 or -1 for the higher one"
)
TripletMarginLoss = _loss(
    "TripletMarginLoss", F.triplet_margin_loss, "anchors, positives and negatives, `[B, N, D]` each"
)
TripletMarginWithDistanceLoss = _loss(
    "TripletMarginWithDistanceLoss",
    F.triplet_margin_with_distance_loss,
    "a distance function of the caller gets `[N, D]` of one model at a time",
)


class CTCLoss(Loss, function=F.ctc_loss):
    """`torch.nn.CTCLoss` for B models: log-probabilities `[B, T, N, C]`, with targets that are not aligned to them.

    Lengths are tensors `[B, N]`. The loss is computed model by model.
    """
