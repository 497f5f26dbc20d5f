# SPDX-License-Identifier: MIT
"""Refusal of adapters that make no array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvalidArgument


def check_alike(models: Sequence[Any]) -> None:
    """Refuse PEFT models that differ in more than their numbers; the message names the first such module."""
    for index, model in enumerate(models):
        for difference in (_of_kind, _of_losses, _of_places, _of_what_trains, _of_virtual_tokens):
            found = difference(models[0], model, index)
            if found:
                raise InvalidArgument(found)


def _config(model: Any) -> Any:
    return next(iter(model.peft_config.values()))


def _of_kind(first: Any, model: Any, index: int) -> str:
    kinds = [_config(m).peft_type.value for m in (first, model)]
    tasks = [type(m).__name__ for m in (first, model)]
    for mine, other, what in ((*kinds, "kind of adapter"), (*tasks, "task_type")):
        if mine != other:
            return f"configs 0 and {index} are {mine} and {other}: an array has one {what}, make one array of each"
    return ""


#: Fields of configs that PEFT reads in a forward or a schedule of ranks, where an array has one config for all models.
_READ_LATER = ("orth_reg_weight", "target_r", "tinit", "tfinal", "deltaT", "beta1", "beta2", "total_step",
               "auxiliary_loss_weight", "shadow_model")  # fmt: skip


def _of_losses(first: Any, model: Any, index: int) -> str:
    for name in _READ_LATER:
        mine, other = (getattr(_config(m), name, None) for m in (first, model))
        if mine != other:
            said = f"configs 0 and {index} have {name} {mine} and {other}"
            return f"{said}, which an array reads once for all models: make one array of each"
    return ""


def _of_places(first: Any, model: Any, index: int) -> str:
    mine, other = _adapted(first), _adapted(model)
    for path in (*mine, *other):
        if mine.get(path) != other.get(path):
            holder, lacker = (0, index) if path in mine else (index, 0)
            kinds = "" if path not in mine or path not in other else f" ({mine[path]} and {other[path]})"
            return (
                f"config {holder} has an adapter on {path}, where config {lacker} has {'another' if kinds else 'none'}"
                f"{kinds}: give all configs the same target_modules and modules_to_save, or make one array of each"
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
                f"config {trains} trains {name}, and config {not_} does not: give all configs the same bias and "
                "modules_to_save, or make one array of each"
            )
    return ""


def _of_virtual_tokens(first: Any, model: Any, index: int) -> str:
    counts = [getattr(_config(m), "num_virtual_tokens", None) for m in (first, model)]
    if counts[0] == counts[1]:
        return ""
    return (
        f"configs 0 and {index} have {counts[0]} and {counts[1]} virtual tokens, so their sequences differ in length: "
        "make one array of each"
    )
