# SPDX-License-Identifier: MIT
"""PEFT's configs in the models of one array: all hold the first model's; values that differ are kept in layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..errors import InvalidArgument

Configs = Mapping[str, Mapping[str, Any]]

#: Fields of a config that PEFT reads when it makes the layers, and never in a forward.
_OF_LAYERS = frozenset([
    "r", "lora_alpha", "lora_dropout", "use_rslora", "rank_pattern", "alpha_pattern", "lora_bias", "bias",
    "target_modules", "exclude_modules", "feedforward_modules", "modules_to_save", "layers_to_transform",
    "layers_pattern", "init_lora_weights", "init_ia3_weights",
])  # fmt: skip


#: Ways to initialize an adapter by name that leave the base as it is; PiSSA and others take a part out of it.
_BESIDE_THE_BASE = frozenset({"gaussian", "orthogonal", "eva"})


def writes_into_base(config: Any) -> bool:
    """Return True if PEFT changes weights of the base when it initializes an adapter by `config`."""
    chosen = getattr(config, "init_lora_weights", None)
    return isinstance(chosen, str) and chosen not in _BESIDE_THE_BASE


def refuse_written_base(model: torch.nn.Module) -> None:
    """Refuse a model that was made over a shared base by an adapter that PEFT initializes by writing into it."""
    for configs in configs_in(model).values():
        for config in configs.values():
            if getattr(config, "init_lora_weights", None) == "olora":
                raise InvalidArgument(
                    "make_model initializes an adapter by 'olora', which writes into the base of all trials: load "
                    "the base anew, and take another, as 'pissa', or dnnsuite.adapt"
                )


def configs_in(model: torch.nn.Module) -> Configs:
    """Find the configs of adapters, by name, for the path of each module that holds some."""
    return {path: part.peft_config for path, part in model.named_modules() if "peft_config" in vars(part)}


def ranked_parts(model: torch.nn.Module) -> set[torch.nn.Module]:
    """Find the parts of LoRA whose ranks and rates of dropout may differ between the models of an array."""
    layers = [part for part in model.modules() if hasattr(part, "lora_A") and hasattr(part, "base_layer")]
    kinds = ("lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B", "lora_dropout")
    return {
        part for layer in layers for kind in kinds if hasattr(layer, kind) for part in getattr(layer, kind).modules()
    }


def take_configs(model: torch.nn.Module, configs: Configs) -> None:
    """Give `model` the `configs` of another, from `configs_in`, if they differ only in values that layers hold."""
    mine = configs_in(model)
    if mine.keys() == configs.keys() and all(_alike(mine[path], configs[path]) for path in mine):
        for path, held in configs.items():
            model.get_submodule(path).__dict__["peft_config"] = held


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(forward_fields(one[n]) == forward_fields(other[n]) for n in one)


def forward_fields(config: Any) -> Any:
    """Return the class of a config, and those of its fields that must be alike in an array."""
    return type(config), {name: value for name, value in vars(config).items() if name not in _OF_LAYERS}
