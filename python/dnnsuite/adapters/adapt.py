# SPDX-License-Identifier: MIT
"""`adapt`: an array of fine-tunings from one base and PEFT's configs."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

import torch

from .._fuse.fusing import fuse
from ..errors import InvalidArgument
from .array import AdapterArray, as_adapter_array
from .builder import AdapterBuilder, places, set_configs


def adapt(
    base: torch.nn.Module, configs: Sequence[Any | str | PathLike[str]], *, seeds: Sequence[int] | None = None
) -> AdapterArray:
    """Make an array of B models over one `base`, each with its own adapter.

    Model i equals `peft.get_peft_model(base, configs[i])`, except that the base is neither copied nor changed: the
    models share its frozen storage. Each model has its own copy of the parts of the base that its adapter trains
    (`modules_to_save`, `bias`). Ranks, alpha, dropout and initial values may differ, and so may the linear layers that
    have LoRA; other adapters must be on the same modules in all models. `array[i].save_pretrained(folder)` writes a
    folder that PEFT loads.

    Args:
        base: a torch module without an adapter.
        configs: one per model: a PEFT config (`peft.LoraConfig`, `IA3Config`, `PrefixTuningConfig`,
            `PromptTuningConfig`), or the folder of a saved adapter.
        seeds: one per model, for the initial values of the adapter and its random streams (dropout); by default both
            are drawn from torch's generator, model after model.

    Returns:
        The array of B models.

    Raises:
        InvalidArgument: the configs cannot form one array; the message names the first module in which models differ.
        Unavailable: PEFT is not installed.
    """
    configs = _listed(configs)
    if seeds is not None and len(seeds) != len(configs):
        raise InvalidArgument(f"adapt takes one seed per config; got {len(seeds)} for {len(configs)}")
    builder = AdapterBuilder(base)
    models = [
        builder.model(config, f"config {index}", None if seeds is None else int(seeds[index]))
        for index, config in enumerate(configs)
    ]
    return array_of(models, builder, seeds)


def array_of(models: Sequence[Any], builder: AdapterBuilder, seeds: Sequence[int] | None) -> AdapterArray:
    """Make an array of models that `builder` made, with their configs."""
    places().fill(models)
    _check_alike(models)
    own = [next(iter(model.peft_config.values())) for model in models]
    for model in models[1:]:
        set_configs(model, models[0].peft_config)
    return as_adapter_array(fuse(models, seeds=seeds), own, builder)


def _listed(configs: Any) -> list[Any]:
    if isinstance(configs, (str, PathLike)) or not hasattr(configs, "__iter__"):
        raise InvalidArgument(f"adapt takes a list of configs, one per model; got a {type(configs).__name__}")
    configs = list(configs)
    if not configs:
        raise InvalidArgument("adapt takes one or more configs, got none")
    return configs


def _check_alike(models: Sequence[Any]) -> None:
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
