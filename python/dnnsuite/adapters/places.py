# SPDX-License-Identifier: MIT
"""LoRA on other modules in one model than in another: where a model has none, a layer of rank 0 stands for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from ..errors import InvalidArgument
from .lora import layers_of, of_rank_zero, rank_of


def fill(models: Sequence[Any], more: Mapping[str, Any] | None = None) -> None:
    """Give all models LoRA layers where one of them has some, and at the places of `more`, layers by path."""
    found = dict(more or {})
    for model in models:
        for path, layer in layers_of(model).items():
            found.setdefault(path, layer)
    for model in models:
        mine = layers_of(model)
        for path, layer in found.items():
            if path not in mine:
                _put(model, path, of_rank_zero(layer, model.get_submodule(path)))
        _name_targets(model, found)


def check(layers: Mapping[str, Any], model: Any) -> None:
    """Refuse a model with LoRA where the array's `layers`, by path, have no place for it."""
    for path, layer in layers_of(model).items():
        if path not in layers:
            raise InvalidArgument(
                f"the new model has an adapter on {path}, where this array has none: make an array with it by adapt"
            )
        rank, most = rank_of(layer), layers[path].most
        if rank > most:
            raise InvalidArgument(
                f"the new model has rank {rank} at {path}, and this array holds ranks up to {most}: make an array with "
                "it by adapt"
            )


def strip(model: Any) -> None:
    """Put the base's layers back where layers of rank 0 stand for them."""
    mine = layers_of(model)
    for path, layer in mine.items():
        if rank_of(layer) == 0:
            _put(model, path, layer.base_layer)
    _name_targets(model, [path for path, layer in mine.items() if rank_of(layer)])


def _put(model: Any, path: str, module: torch.nn.Module) -> None:
    above, _, name = path.rpartition(".")
    model.get_submodule(above)._modules[name] = module


def _name_targets(model: Any, paths: Iterable[str]) -> None:
    """Note the adapted modules where PEFT does, by their names in the base and in its order."""
    tuner = model.base_model
    if "targeted_module_names" in vars(tuner):
        wanted = set(paths)
        tuner.targeted_module_names = [
            path.removeprefix("base_model.model.") for path, _ in model.named_modules() if path in wanted
        ]
