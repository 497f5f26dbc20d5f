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
from .checks import check_alike


def adapt(
    base: torch.nn.Module, configs: Sequence[Any | str | PathLike[str]], *, seeds: Sequence[int] | None = None
) -> AdapterArray:
    """Make an array of B models over one `base`, each with an adapter of its own.

    Model i is the one of `peft.get_peft_model(base, configs[i])`, except that the base is neither copied nor changed:
    the models share its storage, frozen. Each model has its own copy of those parts of the base that its adapter trains
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
    check_alike(models)
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
