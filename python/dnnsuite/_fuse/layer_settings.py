# SPDX-License-Identifier: MIT
"""Settings of layers that code of some models has set, such as an `eps`: an array's layer has one value for all models,
so those of each model are kept beside it while that value stays what it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..nn.array_module import ArrayModule

__all__ = ["give_to_model", "join_settings", "keep_settings", "narrow_settings", "settings_of", "value_of_all"]

_NAME = "_fused_set"  # attribute of a layer: by name, the layer's value and one of each model


def value_of_all(layer: Any, name: str) -> Any:
    """Return an array's setting of a layer; a list where it has one for each model."""
    if isinstance(layer, ArrayModule) and name != "training":
        arguments = layer.arguments_of(layer)
        if name in arguments:
            return arguments[name]
    return vars(layer).get(name)


def settings_of(layer: torch.nn.Module) -> dict[str, list[Any]]:
    """Collect what code of the models has set in a layer: by name one value of each."""
    held = vars(layer).get(_NAME, {})
    return {name: own for name, (known, own) in held.items() if value_of_all(layer, name) == known}


def keep_settings(layer: torch.nn.Module, found: Mapping[str, Sequence[Any]]) -> None:
    """Keep what code of the models has set in a layer beside what is known of others."""
    if found or _NAME in vars(layer):
        kept = {**settings_of(layer), **found}
        vars(layer)[_NAME] = {name: (value_of_all(layer, name), list(own)) for name, own in kept.items()}


def narrow_settings(layer: torch.nn.Module, found: Mapping[str, Sequence[Any]], models: Sequence[int | None]) -> None:
    """Keep of what was `found` in a layer what is of these `models`; a new one, None, has the layer's own value."""
    vars(layer).pop(_NAME, None)
    each = {name: value_of_all(layer, name) for name in found}
    own = {
        name: [_of_model(each[name], place) if model is None else values[model] for place, model in enumerate(models)]
        for name, values in found.items()
    }
    keep_settings(layer, own)


def join_settings(layer: torch.nn.Module, parts: Sequence[tuple[torch.nn.Module, int]]) -> None:
    """Keep in an array's layer what code of models in its `parts` has set: the layer of each, and how many models it
    has."""
    held = [settings_of(part) for part, _ in parts]
    names = dict.fromkeys(name for own in held for name in own)
    found: dict[str, list[Any]] = {name: [] for name in names}
    for (part, models), own in zip(parts, held, strict=True):
        for name in names:
            one = value_of_all(part, name) if name not in own else own[name]
            found[name] += [_of_model(one, index) for index in range(models)]
    keep_settings(layer, found)


def give_to_model(layer: torch.nn.Module, model: torch.nn.Module, index: int) -> None:
    """Set in the layer of model `index` what its code has set."""
    vars(model).pop(_NAME, None)
    for name, own in settings_of(layer).items():
        if name == "training":
            model.train(own[index])
        else:
            vars(model)[name] = own[index]


def _of_model(value: Any, index: int) -> Any:
    return value[index] if isinstance(value, list) else value
