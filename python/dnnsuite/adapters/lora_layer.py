# SPDX-License-Identifier: MIT
"""Base of the LoRA layers of B models, each with its own rank, scale and rate of dropout, over one base layer."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from .. import nn
from .._fuse.build import Fusion
from .._fuse.single_model import model_of
from ..errors import InvalidArgument
from ..nn.array_module import ArrayModule
from ..nn.sharing import own
from ..ops.shared import beside

_RANK = "_rank_in_array"
MAGNITUDE = "lora_magnitude_vector"  # of DoRA


class LoraLayer(ArrayModule):
    """A layer of `peft.tuners.lora` for B models: W x + s_b B_b A_b dropout(x).

    Ranks may differ. The tensors named in `factors` have room for the largest rank R; what lies beyond a model's own
    rank is zero, and so are its gradients, so it stays zero under every optimizer.
    """

    #: Attributes that PEFT sets in a layer and has in the class, too.
    set_by_constructor = frozenset(
        {"_active_adapter", "_disable_adapters", "adapter_layer_names", "merged_adapters", "other_param_names"}
    )
    per_model_lists = ("layers",)
    called_parts = ("base_layer",)
    #: Containers of the factors A and B in one of PEFT's layers, and the dimension of the rank in their tensors.
    factors: dict[str, int] = {"lora_A": 0, "lora_B": 1}  # noqa: RUF012

    def __init__(self, base_layer: torch.nn.Module, layers: Sequence[Any], *, B: int) -> None:
        """`layers` are PEFT's; this one has copies of their parameters, and `base_layer` in the place of theirs."""
        super().__init__(B)
        (self.adapter,) = layers[0].r
        self.layers = [without_tensors(layer) for layer in layers]
        self.enabled = True
        self.base_layer = base_layer
        rank = max(max(rank_of(layer), vars(layer).get(_RANK, 0)) for layer in layers)
        rates = [getattr(layer.lora_dropout[self.adapter], "p", 0.0) for layer in layers]
        first = next(layers[0].get_submodule(next(iter(self.factors))).parameters())
        dropout = nn.Dropout(rates, device=first.device, B=B)
        dropout.seeded_by_name = True  # a model alone may have no layer here
        self.lora_dropout = torch.nn.ModuleDict({self.adapter: dropout})
        if is_dora(layers[0]):
            self.factors = {**self.factors, MAGNITUDE: 0}
        for name in self.factors:
            setattr(self, name, self._container(name, layers[0], rank))
            mine, theirs = self._held(self, name), [self._held(layer, name) for layer in layers]
            for part, room in mine.items():
                if room is not None:
                    values = [held[part] for held in theirs]
                    mine[part] = self._laid_out(name, _padded(f"{name}.{part}", values, room.shape))
        self.register_buffer("scale", torch.empty(B, dtype=first.dtype, device=first.device), persistent=False)
        self._set_scale()

    def _container(self, name: str, layer: Any, rank: int) -> torch.nn.Module:
        """Make the container of a factor on the meta device, like that of PEFT's `layer`, with room for a rank."""
        raise NotImplementedError

    def _held(self, layer: Any, name: str) -> dict[str, Any]:
        """Find the dictionary of a factor's parameters in this layer or in one of PEFT's."""
        held: dict[str, Any] = getattr(layer, name)[self.adapter]._parameters
        return held

    @staticmethod
    def _laid_out(name: str, parameter: torch.nn.Parameter) -> torch.nn.Parameter:
        """Lay a factor out in memory as the layer computes with it."""
        return parameter

    @classmethod
    def can_fuse(cls, models: Sequence[Any]) -> bool:
        """Return True for layers with one adapter that is in use, and none of PEFT's variants of LoRA but DoRA."""
        names = list(models[0].r)
        alike = len({is_dora(model) for model in models}) == 1
        return len(names) == 1 and alike and all(_is_plain(model, names, cls.factors) for model in models)

    @classmethod
    def from_models(cls, models: Sequence[Any]) -> LoraLayer:
        made: LoraLayer = cls(Fusion([m.base_layer for m in models]).tree(), models, B=len(models))
        return made.train(models[0].training)

    @torch.no_grad()
    def to_model(self, index: int) -> Any:
        layer = copy.deepcopy(self.layers[index])
        layer.base_layer = model_of(self.base_layer, index)
        for name, dim in self.factors.items():
            theirs = self._held(layer, name)
            for part, parameter in self._held(self, name).items():
                if parameter is not None:
                    cut = _of_rank(parameter.detach()[index], dim, rank_of(layer))
                    theirs[part] = torch.nn.Parameter(own(cut), parameter.requires_grad)
        dropout: Any = self.lora_dropout[self.adapter]
        rate = dropout.rates[index]
        if rate != getattr(layer.lora_dropout[self.adapter], "p", 0.0):
            layer.lora_dropout[self.adapter] = torch.nn.Dropout(rate)
        layer.__dict__[_RANK] = self.most
        return layer.train(self.training)

    @property
    def ranks(self) -> list[int]:
        """Ranks of the models; 0 where a model has no adapter here."""
        return [rank_of(layer) for layer in self.layers]

    def padded_parameters(self) -> list[torch.Tensor]:
        """List the factors if there are models of smaller ranks, which use a part of them."""
        held = [p for name in type(self).factors for p in self._held(self, name).values() if p is not None]
        return held if len(set(self.ranks)) > 1 else []

    @property
    def most(self) -> int:
        """The largest rank that there is room for."""
        name, dim = next(iter(self.factors.items()))
        return int(next(iter(self._held(self, name).values())).shape[1 + dim])

    @property
    def weight(self) -> Any:
        """Weight of the base layer, which models' code may look at."""
        return self.base_layer.weight

    @property
    def bias(self) -> Any:
        """Bias of the base layer."""
        return self.base_layer.bias

    def recorded_values(self) -> tuple[Any, ...]:
        return ()  # scales are read anew

    def extra_repr(self) -> str:
        return f"ranks={self.ranks}, B={self.B}"

    def _scaled(self, x: torch.Tensor) -> torch.Tensor:
        """x `[B, ...]` times each model's scale."""
        return x * beside(self.scale, x)

    def _apply(self, fn: Any, recurse: bool = True) -> LoraLayer:
        super()._apply(fn, recurse)
        self._set_scale()  # what was rounded to a narrow type is exact again in a wide one
        return self

    @torch.no_grad()
    def _set_scale(self) -> None:
        scales = [layer.scaling[self.adapter] for layer in self.layers]
        self.scale.copy_(torch.tensor(scales, dtype=torch.float64))


def rank_of(layer: Any) -> int:
    """Return the rank of a layer of PEFT's; 0 if it stands for one that a model does not have."""
    (rank,) = layer.r.values()
    return int(rank)


def is_dora(layer: Any) -> bool:
    """Return True for a layer of PEFT's with DoRA."""
    return {type(variant).__name__ for variant in layer.lora_variant.values()} == {"DoraLinearVariant"}


def _of_rank(parameter: torch.Tensor, dim: int, rank: int) -> torch.Tensor:
    """Cut a model's own rank out of a factor; a bias has none, and filters in groups have a part of it each."""
    return parameter.narrow(dim, 0, min(rank, parameter.shape[dim])) if parameter.dim() > 1 else parameter


def _is_plain(layer: Any, names: list[str], factors: dict[str, int]) -> bool:
    return (
        all(list(getattr(layer, name)) == names for name in factors)
        and list(layer.active_adapters) == names
        and not (layer.disable_adapters or layer.merged or (layer.lora_variant and not is_dora(layer)))
        and layer.cast_input_dtype_enabled
        and type(layer.lora_dropout[names[0]]) in (torch.nn.Dropout, torch.nn.Identity)
    )


def _padded(name: str, values: Sequence[torch.Tensor], shape: torch.Size) -> torch.nn.Parameter:
    """Stack tensors in the corners of zeros `shape` [B, ...]."""
    first = values[0]
    for index, value in enumerate(values):
        for what in ("dtype", "device", "requires_grad"):
            if getattr(value, what) != getattr(first, what):
                raise InvalidArgument(f"models 0 and {index} differ: {what} of {name}")
    made = first.detach().new_zeros(shape)
    for place, value in zip(made, values, strict=True):
        place[tuple(slice(size) for size in value.shape)].copy_(value.detach())
    return torch.nn.Parameter(made, first.requires_grad)


def without_tensors(layer: Any) -> Any:
    """Copy one of PEFT's layers without its base and its numbers."""
    memo: dict[int, Any] = {id(p): torch.nn.Parameter(p.new_empty(0), False) for p in layer.parameters()}
    memo[id(layer.base_layer)] = None
    made = copy.deepcopy(layer, memo)
    made.__dict__.pop(_RANK, None)
    return made
