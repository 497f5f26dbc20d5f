# SPDX-License-Identifier: MIT
"""Bases that `fully_shard` has divided over processes: each holds a part of every large weight, and so does the array.

A layer gathers its weight where it computes, once for all models, and again for the gradient of its input, as FSDP
does; nothing whole is kept between the two. What is small (norms, biases) is held whole in each process.
"""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from .._fuse.layer_table import register
from ..errors import InvalidArgument
from ..nn.array_module import ArrayModule

_WAY_OUT = "adapt a base that is not, in each process, and divide the data (DistributedDataParallel)"


def is_part(tensor: Any) -> bool:
    """Return True for a tensor of which this process has a part."""
    return type(tensor).__name__ == "DTensor" or type(getattr(tensor, "data", None)).__name__ == "DTensor"


def _whole(part: Any) -> torch.Tensor:
    """Gather a tensor; every process has to come here."""
    with torch.no_grad():
        whole: torch.Tensor = part.detach().full_tensor() if is_part(part) else part.detach()
        return whole


def _refuse_thread() -> None:
    """Refuse a forward in a thread beside others: all processes gather in one order."""
    if threading.current_thread() is not threading.main_thread():
        raise InvalidArgument(
            "the base is divided over processes, which gather its weights in one order: train in the main thread, by "
            "hand or with StepRunner(..., threads=1)"
        )


class _Product(torch.autograd.Function):
    """x `[*, in]` times a divided weight `[out, in]`."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: Any, bias: torch.Tensor | None) -> torch.Tensor:
        _refuse_thread()
        ctx.weight = weight
        return torch.nn.functional.linear(x, _whole(weight), bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return dy @ _whole(ctx.weight).to(dy.dtype), None, None


class _Divided(torch.nn.Module):
    held_by_models = True

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Copy the whole layer, for a model that trains it (`modules_to_save`)."""
        kind: Any = type(self).__mro__[2]
        made = memo[id(self)] = kind.__new__(kind)
        own = {
            name: None if p is None else torch.nn.Parameter(_whole(p).clone(), False)
            for name, p in self._parameters.items()
        }
        made.__dict__.update({**copy.deepcopy({**vars(self), "_parameters": {}}, memo), "_parameters": own})
        return made


class DividedLinear(_Divided, torch.nn.Linear):
    """`torch.nn.Linear` that gathers its weight."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = _Product.apply(input, self.weight, self.bias)
        return found


class DividedEmbedding(_Divided, torch.nn.Embedding):
    """`torch.nn.Embedding` that gathers its weight."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding(input, _whole(self.weight), self.padding_idx, self.max_norm)


class HeldLayer(ArrayModule):
    """A frozen layer of the base: `[B, *, in]` to `[B, *, out]`. Its numbers are no state of the array."""

    def __init__(self, layer: torch.nn.Module, *, B: int) -> None:
        super().__init__(B)
        self.__dict__["layer"] = layer  # no part of the tree: nothing of it is stacked, saved or edited

    @classmethod
    def can_fuse(cls, models: Sequence[Any]) -> bool:
        """Return True for one frozen layer that all models hold."""
        first = models[0]
        return all(model is first for model in models) and not any(p.requires_grad for p in first.parameters())

    @classmethod
    def from_models(cls, models: Sequence[Any]) -> Any:
        return cls(models[0], B=len(models)).train(models[0].training)

    def to_model(self, index: int) -> Any:
        return self.layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layer(x)
        return found

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        weight = self.layer.weight
        like = torch.empty(0, dtype=weight.dtype, device=weight.device)
        if (fn(like).device, fn(like).dtype) != (like.device, like.dtype):
            raise InvalidArgument(
                "an array over a base that is quantized, or divided over processes, cannot be moved to another device "
                "or given another type: move the base, and adapt it there"
            )
        return super()._apply(fn, recurse)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = type(self)(self.layer, B=self.B).train(self.training)
        memo[id(self)] = made
        return made

    def extra_repr(self) -> str:
        return f"{self.layer}, B={self.B}"


class LinearOfArray(HeldLayer):
    torch_class: ClassVar[Any] = DividedLinear


class EmbeddingOfArray(HeldLayer):
    torch_class: ClassVar[Any] = DividedEmbedding


_KINDS: dict[type, type] = {torch.nn.Linear: DividedLinear, torch.nn.Embedding: DividedEmbedding}
for _layer in (LinearOfArray, EmbeddingOfArray):
    register(_layer)


def undivided(base: torch.nn.Module) -> torch.nn.Module:
    """Copy the modules of a base under `fully_shard`, on the same parts of its weights and without FSDP's hooks; a
    base that is not divided is returned as it is.

    Raises:
        InvalidArgument: it is divided in another way, or a large weight is in no linear layer or embedding.
    """
    sharded: list[Any] = [part for part in base.modules() if isinstance(part, _sharded_class())]
    for part in sharded:
        part.reshard()
        stored = [p.dtype for p in part.parameters()]
        part.unshard()  # nothing else tells a policy
        kept = next((p.dtype for p, dtype in zip(part.parameters(), stored, strict=True) if p.dtype != dtype), None)
        part.reshard()
        if kept is not None:
            raise InvalidArgument(
                f"fully_shard has a mixed-precision policy of {kept}, and an array computes in the base's own type: "
                "convert the base before fully_shard, without a policy"
            )
    for path, part in base.named_modules():
        large = [name for name, p in part._parameters.items() if is_part(p) and p.dim() > 1]
        if large and not (sharded and _own_kind(part) in _KINDS):
            raise InvalidArgument(
                f"the base is divided over processes at {path or 'the top'}, a {_own_kind(part).__name__}, and an "
                f"array gathers the weights of linear layers and embeddings under fully_shard: {_WAY_OUT}"
            )
    if not sharded:
        return base
    return _copied(base, {})


def _sharded_class() -> Any:
    """Class that `fully_shard` adds to those of modules; none while torch's FSDP is not imported."""
    return getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", ())


def _own_kind(module: torch.nn.Module) -> type:
    """Class of a module before `fully_shard`."""
    kind, added = type(module), _sharded_class()
    return kind.__mro__[kind.__mro__.index(added) + 1] if issubclass(kind, added) else kind


def _copied(module: torch.nn.Module, made: dict[int, Any]) -> Any:
    if id(module) in made:
        return made[id(module)]
    kind: Any = _own_kind(module)
    divided = kind in _KINDS and is_part(module.weight)
    kind = _KINDS[kind] if divided else kind
    new = made[id(module)] = kind.__new__(kind)
    own = {name: v for name, v in vars(module).items() if not name.startswith("__composable")}  # FSDP's state
    new.__dict__.update({name: copy.copy(v) if isinstance(v, dict) else v for name, v in own.items()})
    for hooks in (new._forward_hooks, new._forward_pre_hooks):
        for key in [key for key, hook in hooks.items() if hook.__module__.startswith("torch.distributed.fsdp")]:
            del hooks[key]
    for name, p in module._parameters.items():
        if p is not None and id(p) not in made:
            part = divided and name == "weight"
            made[id(p)] = torch.nn.Parameter(p.detach() if part else _whole(p), requires_grad=False)
        new._parameters[name] = p if p is None else made[id(p)]
    new._modules = {name: None if child is None else _copied(child, made) for name, child in module._modules.items()}
    return new
