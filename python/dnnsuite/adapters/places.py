# SPDX-License-Identifier: MIT
"""LoRA on other modules in one model than in another: where a model has none, a layer of rank 0 stands for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from ..errors import InvalidArgument
from .lora import LoraEmbedding, LoraLinear
from .lora_convolution import LoraConv1d, LoraConv2d, LoraConv3d
from .lora_layer import LoraLayer, is_dora, rank_of, without_tensors

#: Layers that another model may be without, by PEFT's classes.
KINDS: dict[type, type[LoraLayer]] = {
    kind.torch_class: kind for kind in (LoraLinear, LoraEmbedding, LoraConv1d, LoraConv2d, LoraConv3d)
}


def fill(models: Sequence[Any], more: Mapping[str, Any] | None = None) -> None:
    """Give all models LoRA layers where one of them has some, and at the places of `more`, layers by path."""
    found = dict(more or {})
    for model in models:
        for path, layer in layers_of(model).items():
            found.setdefault(path, layer)
    for model in models:
        mine = layers_of(model)
        for path, layer in found.items():
            if path not in mine and is_dora(layer):
                raise InvalidArgument(
                    f"a config has DoRA on {path}, where another has no adapter: give all configs the same "
                    "target_modules, or make one array of each"
                )
            if path not in mine:
                _put(model, path, _of_rank_zero(layer, _base_layer(model, path)))
        _name_targets(model, found)


def _base_layer(model: Any, path: str) -> torch.nn.Module:
    try:
        found: torch.nn.Module = model.get_submodule(path)
    except AttributeError as error:
        raise InvalidArgument(
            f"a config has an adapter on {path}, where another has no layer (layer_replication): make an array of each"
        ) from error
    return found


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


def layers_of(model: torch.nn.Module) -> dict[str, Any]:
    """Find, by path, the LoRA layers of a model which another model may be without."""
    return {
        path: module
        for path, module in model.named_modules()
        if type(module) in KINDS and getattr(module.base_layer, "groups", 1) == 1
    }


def _of_rank_zero(layer: Any, base_layer: torch.nn.Module) -> Any:
    """Make a layer of rank 0 over `base_layer` that goes into an array with `layer`."""
    (name,) = layer.r
    made = without_tensors(layer)
    made.base_layer = base_layer
    made.r, made.scaling = {name: 0}, {name: 0.0}
    made.lora_dropout[name] = torch.nn.Identity()
    a, b = KINDS[type(layer)].factors
    kernel = getattr(getattr(layer, a)[name], "kernel_size", ())
    shapes = {a: (0, layer.in_features, *kernel), b: (layer.out_features, 0, *(1 for _ in kernel))}
    for factor, shape in shapes.items():
        held = _held(made, factor, name)
        part = name if name in held else "weight"
        held[part] = torch.nn.Parameter(held[part].new_empty(shape))
        if held.get("bias") is not None:
            held["bias"] = torch.nn.Parameter(held["bias"].new_zeros(layer.out_features))
    return made


def _held(layer: Any, factor: str, name: str) -> dict[str, Any]:
    """Find the dictionary of a factor's parameters."""
    container = getattr(layer, factor)
    held: dict[str, Any] = (container if name in container._parameters else container[name])._parameters
    return held


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
