# SPDX-License-Identifier: MIT
"""PEFT's models over one base, from configs and folders of saved adapters."""

from __future__ import annotations

import contextlib
import copy
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ..errors import InvalidArgument, did_you_mean
from ._peft import import_peft
from .base import SharedBase

_NO_MODULES = re.compile(r"[Tt]arget modules .* not found")


class AdapterBuilder:
    """Makes models of PEFT's over one base."""

    def __init__(self, base: torch.nn.Module) -> None:
        self._peft = import_peft()
        if not isinstance(base, torch.nn.Module):
            raise InvalidArgument(f"adapt takes a torch module as the base; got a {type(base).__name__}")
        for path, module in base.named_modules():
            if hasattr(module, "peft_config") or hasattr(module, "base_layer"):
                raise InvalidArgument(
                    f"the base has an adapter already, at {path or 'the top'}, a {type(module).__name__}: give the "
                    "model without it (model.unload(), or model.merge_and_unload() to keep what it has learned)"
                )
        self._names = [name for name, _ in base.named_modules() if name]
        self._shared = SharedBase(base)

    def model(self, config: Any, which: str, seed: int | None = None) -> Any:
        """Make the model of a config, or of the folder of a saved adapter.

        Args:
            which: its name in messages.
            seed: of torch's generator while the adapter is initialised; None leaves the generator as it is.
        """
        made = self._loaded if isinstance(config, (str, os.PathLike)) else self._fresh
        with _seeded(seed):
            return self._shared.model(lambda own: made(own, config, which))

    def _fresh(self, own: torch.nn.Module, config: Any, which: str) -> Any:
        if not isinstance(config, self._peft.PeftConfig):
            raise InvalidArgument(
                f"{which} is a {type(config).__name__}: give a config of PEFT's (peft.LoraConfig(...)), or the "
                "folder of a saved adapter"
            )
        try:
            return self._peft.get_peft_model(own, copy.deepcopy(config))
        except ValueError as error:
            raise InvalidArgument(f"{which}: {self._explained(error, config)}") from error

    def _explained(self, error: ValueError, config: Any) -> str:
        """Say what PEFT's error says, and what the base has in place of modules that it has not."""
        said = str(error)
        wanted = getattr(config, "target_modules", None)
        if not _NO_MODULES.search(said) or not wanted:
            return said
        wanted = [wanted] if isinstance(wanted, str) else sorted(wanted)
        known = list(dict.fromkeys(name.rpartition(".")[2] for name in self._names))
        hints = "".join(did_you_mean(name, known) for name in wanted[:1])
        return f"the base has no module named {', '.join(map(repr, wanted))}{hints}; it has " + ", ".join(
            name for name in known if not name.isdecimal()
        )

    def _loaded(self, own: torch.nn.Module, folder: str | os.PathLike[str], which: str) -> Any:
        if not (Path(folder) / "adapter_config.json").is_file():
            raise InvalidArgument(
                f"{which}: {os.fspath(folder)} has no adapter_config.json: give a folder that save_pretrained wrote"
            )
        training, folder = own.training, os.fspath(folder)
        prompts = self._peft.PeftConfig.from_pretrained(folder).is_prompt_learning
        model = self._peft.PeftModel.from_pretrained(own, folder, is_trainable=not prompts)
        if prompts:  # which PEFT loads for inference alone
            model.prompt_encoder.requires_grad_()
        return model.train(training)

    def __deepcopy__(self, memo: Any) -> AdapterBuilder:
        return self  # the base is no array's own

    def __reduce__(self) -> Any:
        return _nothing, ()


def set_configs(model: Any, configs: dict[str, Any]) -> None:
    """Give a model of PEFT's other configs by name of the adapter, in every part that holds them."""
    model.peft_config = configs
    for part in model.modules():
        if "peft_config" in vars(part):
            part.peft_config = configs


def _nothing() -> None:
    """Stands for a builder in a pickle, which has the base in the array alone."""


@contextlib.contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    if seed is None:
        yield
        return
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
