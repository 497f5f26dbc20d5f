# SPDX-License-Identifier: MIT
"""LoRA layers of B models, each with its own rank, scale and rate of dropout, over one base layer."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from peft.tuners import lora

from .. import nn, ops
from .._fuse.build import Fusion
from .._fuse.layer_table import register
from .._fuse.single_model import model_of
from ..errors import InvalidArgument
from ..nn.array_module import ArrayModule

_RANK = "_rank_in_array"


class LoraLinear(ArrayModule):
    """`peft.tuners.lora.Linear` for B models: W x + s_b B_b A_b dropout(x), for `[B, *, in]` to `[B, *, out]`.

    Ranks may differ. `lora_A` is `[B, R, in]` and `lora_B` `[B, out, R]` with the largest rank R; rows and columns
    beyond a model's own rank are zero, and so are their gradients, so they stay zero under every optimizer.
    """

    torch_class: ClassVar[Any] = lora.Linear
    #: Attributes that PEFT sets in a layer and has in the class, too.
    set_by_constructor = frozenset({"_active_adapter", "_disable_adapters", "merged_adapters"})
    per_model_lists = ("layers",)

    def __init__(self, base_layer: torch.nn.Module, layers: Sequence[Any], *, B: int) -> None:
        """`layers` are PEFT's; this one has copies of their parameters, and `base_layer` in the place of theirs."""
        super().__init__(B)
        (self.adapter,) = layers[0].lora_A
        self.layers = [_without_tensors(layer) for layer in layers]
        self.enabled = True
        self.base_layer = base_layer
        rank = max(max(rank_of(layer), vars(layer).get(_RANK, 0)) for layer in layers)
        first = layers[0].lora_B[self.adapter]
        sizes = layers[0].in_features, rank, layers[0].out_features
        rates = [getattr(layer.lora_dropout[self.adapter], "p", 0.0) for layer in layers]
        dropout = nn.Dropout(rates, device=first.weight.device, B=B)
        dropout.seeded_by_name = True  # a model alone may have no layer here
        self.lora_dropout = torch.nn.ModuleDict({self.adapter: dropout})
        self.lora_A = torch.nn.ModuleDict({self.adapter: _linear(*sizes[:2], False, B)})
        self.lora_B = torch.nn.ModuleDict({self.adapter: _linear(*sizes[1:], first.bias is not None, B)})
        for name in ("lora_A", "lora_B"):
            mine = getattr(self, name)[self.adapter]
            for part, parameter in list(mine._parameters.items()):
                if parameter is not None:
                    values = [layer.get_parameter(f"{name}.{self.adapter}.{part}") for layer in layers]
                    setattr(mine, part, _padded(f"{name}.{part}", values, parameter.shape))
        self.register_buffer("scale", torch.empty(B, dtype=first.weight.dtype), persistent=False)
        self._set_scale()

    @classmethod
    def can_fuse(cls, models: Sequence[Any]) -> bool:
        """Return True for layers with one adapter that is in use, and none of PEFT's variants of LoRA."""
        names = list(models[0].lora_A)
        return len(names) == 1 and all(_is_plain(model, names) for model in models)

    @classmethod
    def from_models(cls, models: Sequence[Any]) -> LoraLinear:
        made: LoraLinear = cls(Fusion([m.base_layer for m in models]).tree(), models, B=len(models))
        return made.train(models[0].training)

    @torch.no_grad()
    def to_model(self, index: int) -> Any:
        layer = copy.deepcopy(self.layers[index])
        layer.base_layer = model_of(self.base_layer, index)
        for name, cut in (("lora_A", _rows), ("lora_B", _columns)):
            mine, theirs = getattr(self, name)[self.adapter], getattr(layer, name)[self.adapter]
            for part, parameter in mine._parameters.items():
                if parameter is not None:
                    own = cut(parameter.detach()[index], rank_of(layer)).clone()
                    setattr(theirs, part, torch.nn.Parameter(own, parameter.requires_grad))
        rate = self._parts()[0].rates[index]
        if rate != getattr(layer.lora_dropout[self.adapter], "p", 0.0):
            layer.lora_dropout[self.adapter] = torch.nn.Dropout(rate)
        layer.__dict__[_RANK] = self.most
        return layer.train(self.training)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.base_layer(x)
        if not self.enabled:
            return result
        dropout, a, b = self._parts()
        hidden = ops.linear(dropout(x.to(a.weight.dtype)), a.weight)
        scale = self.scale.view(-1, *[1] * (hidden.dim() - 1))
        bias = None if b.bias is None else b.bias * self.scale.unsqueeze(1)
        return (result + ops.linear(hidden * scale, b.weight, bias)).to(result.dtype)

    def _parts(self) -> tuple[Any, Any, Any]:
        return self.lora_dropout[self.adapter], self.lora_A[self.adapter], self.lora_B[self.adapter]

    @property
    def most(self) -> int:
        """The largest rank that there is room for."""
        return int(self.lora_A[self.adapter].out_features)  # type: ignore[arg-type]

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
        return f"ranks={[rank_of(layer) for layer in self.layers]}, B={self.B}"

    def _apply(self, fn: Any, recurse: bool = True) -> LoraLinear:
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


def _rows(parameter: torch.Tensor, rank: int) -> torch.Tensor:
    return parameter[:rank]


def _columns(parameter: torch.Tensor, rank: int) -> torch.Tensor:
    return parameter[:, :rank] if parameter.dim() == 2 else parameter


def _is_plain(layer: Any, names: list[str]) -> bool:
    return (
        list(layer.lora_A) == list(layer.lora_B) == list(layer.active_adapters) == names
        and not (layer.disable_adapters or layer.merged or layer.lora_variant)
        and layer.cast_input_dtype_enabled
        and type(layer.lora_dropout[names[0]]) in (torch.nn.Dropout, torch.nn.Identity)
    )


def _linear(inputs: int, outputs: int, bias: bool, B: int) -> nn.Linear:
    made: nn.Linear = nn.Linear(inputs, outputs, bias, device="meta", B=B)
    return made


def _padded(name: str, values: Sequence[torch.Tensor], shape: torch.Size) -> torch.nn.Parameter:
    """Stack tensors in the corners of zeros `shape` [B, ...]."""
    first = values[0]
    for index, value in enumerate(values):
        if (value.dtype, value.device, value.requires_grad) != (
            first.dtype,
            first.device,
            first.requires_grad,
        ):
            raise InvalidArgument(f"models 0 and {index} differ: dtype, device or requires_grad of {name}")
    made = first.new_zeros(shape)
    for own, value in zip(made, values, strict=True):
        own[tuple(slice(size) for size in value.shape)].copy_(value.detach())
    return torch.nn.Parameter(made, first.requires_grad)


def _without_tensors(layer: Any) -> Any:
    """Copy one of PEFT's layers without its base and its numbers."""
    memo: dict[int, Any] = {id(p): torch.nn.Parameter(p.new_empty(0), False) for p in layer.parameters()}
    memo[id(layer.base_layer)] = None
    made = copy.deepcopy(layer, memo)
    made.__dict__.pop(_RANK, None)
    return made


def layers_of(model: torch.nn.Module) -> dict[str, Any]:
    """Find the LoRA layers on linear ones that a model has, by path."""
    return {path: module for path, module in model.named_modules() if type(module) is lora.Linear}


def of_rank_zero(layer: Any, base_layer: torch.nn.Module) -> Any:
    """Make a layer of rank 0 over `base_layer` that goes into an array with `layer`."""
    (name,) = layer.lora_A
    made = _without_tensors(layer)
    made.base_layer = base_layer
    made.r, made.scaling = {name: 0}, {name: 0.0}
    made.lora_dropout[name] = torch.nn.Identity()
    sizes = {"lora_A": (0, layer.in_features), "lora_B": (layer.out_features, 0)}
    for part, shape in sizes.items():
        product = getattr(made, part)[name]
        product.weight = torch.nn.Parameter(product.weight.new_empty(shape))
        if product.bias is not None:
            product.bias = torch.nn.Parameter(product.bias.new_zeros(layer.out_features))
    return made


register(LoraLinear)
