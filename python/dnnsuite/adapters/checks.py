# SPDX-License-Identifier: MIT
"""Refusal of adapters that make no array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvalidArgument


def check_alike(models: Sequence[Any]) -> None:
    """Refuse PEFT models that differ in more than their numbers; the message names the first such module."""
    for index, model in enumerate(models):
        for difference in (_of_values, _of_places, _of_what_trains):
            found = difference(models[0], model, index)
            if found:
                raise InvalidArgument(f"{found}, or make one array of each")


def _config(model: Any) -> Any:
    return next(iter(model.peft_config.values()))


#: Fields of configs that PEFT reads in a forward or a schedule of ranks.
_READ_LATER = ("orth_reg_weight", "target_r", "tinit", "tfinal", "deltaT", "beta1", "beta2", "total_step",
               "auxiliary_loss_weight", "shadow_model", "num_virtual_tokens")  # fmt: skip


def _of_values(first: Any, model: Any, index: int) -> str:
    """Compare what an array has once for all models."""
    values = [
        {
            "kind of adapter": _config(one).peft_type.value,
            "task_type": type(one).__name__,
            **{name: getattr(_config(one), name, None) for name in _READ_LATER},
        }
        for one in (first, model)
    ]
    for what, mine in values[0].items():
        if mine != values[1][what]:
            said = f"configs 0 and {index} have {what} {mine} and {values[1][what]}"
            return f"{said}, which an array has once for all models: give all configs the same"
    return ""


def _of_places(first: Any, model: Any, index: int) -> str:
    mine, other = _adapted(first), _adapted(model)
    for path in (*mine, *other):
        if mine.get(path) != other.get(path):
            holder, lacker = (0, index) if path in mine else (index, 0)
            kinds = "" if path not in mine or path not in other else f" ({mine[path]} and {other[path]})"
            return (
                f"config {holder} has an adapter on {path}, where config {lacker} has {'another' if kinds else 'none'}"
                f"{kinds}, and an array runs the same module for all models: give all configs the same target_modules "
                "and modules_to_save"
            )
    return ""


def _adapted(model: Any) -> dict[str, str]:
    """Find the class of each module of PEFT's that stands for one of the base, by the base's name of it."""
    base = model.get_base_model()
    return {
        path: type(module).__name__
        for path, module in base.named_modules()
        if "base_layer" in module._modules or "original_module" in module._modules
    }


def _of_what_trains(first: Any, model: Any, index: int) -> str:
    mine, other = ({n: p.requires_grad for n, p in m.named_parameters()} for m in (first, model))
    for name in (*mine, *other):
        if mine.get(name, False) != other.get(name, False):
            trains, not_ = (0, index) if mine.get(name) else (index, 0)
            return (
                f"config {trains} trains {name}, and config {not_} does not, and an array trains a parameter in all "
                "models or in none: give all configs the same bias, lora_bias and modules_to_save"
            )
    return ""
