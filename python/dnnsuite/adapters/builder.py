# SPDX-License-Identifier: MIT
"""PEFT's models over one base, from configs and folders of saved adapters."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from .._fuse.array import Array
from .._fuse.layer_table import know_layers_of, register_package
from ..data import import_torchvision
from ..errors import InvalidArgument, Unavailable, did_you_mean, some_of
from ..nn.array_module import ArrayModule
from .base import SharedBase, is_held, is_quantized
from .configs import writes_into_base
from .divided import is_part, undivided


def import_peft() -> ModuleType:
    """Import peft, even if the installed torchvision was built for another torch.

    Raises:
        Unavailable: if it is not installed.
    """
    with contextlib.suppress(Unavailable):  # transformers needs no torchvision, only none that fails to import
        import_torchvision()
    try:
        found = importlib.import_module("peft")
    except ModuleNotFoundError as error:
        if error.name != "peft":
            raise
        raise Unavailable("PEFT is not installed", remedy="pip install 'dnnsuite[peft]'") from None
    return found


for _package, _room in (("peft", ".places"), ("bitsandbytes", ".quantized")):
    register_package(_package, functools.partial(importlib.import_module, _room, __package__))


class AdapterBuilder:
    """Maker of PEFT's models over one base."""

    def __init__(self, base: torch.nn.Module) -> None:
        self._peft = import_peft()
        if not isinstance(base, torch.nn.Module):
            raise InvalidArgument(f"adapt takes a torch module as the base; got a {type(base).__name__}")
        if isinstance(base, (Array, ArrayModule)):
            raise InvalidArgument("adapt takes one model as the base, and got an array: give array[i]")
        for path, module in base.named_modules():
            if hasattr(module, "peft_config") or hasattr(module, "base_layer"):
                raise InvalidArgument(
                    f"the base has an adapter already, at {path or 'the top'}, a {type(module).__name__}: give the "
                    "model without it (model.unload(), or model.merge_and_unload() to keep what it has learned)"
                )
            _refuse_quantized(path, module)
        know_layers_of([base])
        self._names = [name for name, _ in base.named_modules() if name]
        self.base = base
        self.shared = SharedBase(undivided(base), statistics=True)
        self.rows: Any = None  # the base for batches in rows, or why there is none; `rows.rows_of` makes it

    def model(self, config: Any, which: str, seed: int | None = None) -> Any:
        """Make the model of a config, or of the folder of a saved adapter.

        Args:
            which: its name in messages.
            seed: seed of torch's generator while the adapter is initialised; None leaves the generator as it is.
        """
        saved = isinstance(config, (str, os.PathLike))
        if saved:
            self._check_folder(config, which)
        read = self._peft.PeftConfig.from_pretrained(os.fspath(config)) if saved else config
        made = self._loaded if saved else self._fresh
        with _seeded(seed):
            model = self.shared.model(lambda own: made(own, config, which), writes_into_base(read))
        for refuse in (_refuse_attention, _refuse_trained, _refuse_tied):
            refuse(model, which)
        return model

    def _fresh(self, own: torch.nn.Module, config: Any, which: str) -> Any:
        if not isinstance(config, self._peft.PeftConfig):
            raise InvalidArgument(
                f"{which} is a {type(config).__name__}: give a config of PEFT's (peft.LoraConfig(...)), or the "
                "folder of a saved adapter"
            )
        for argument in ("target_modules", "modules_to_save"):
            self._check_names(getattr(config, argument, None), f"{which}: {argument}")
        try:
            return self._peft.get_peft_model(own, copy.deepcopy(config))
        except (ValueError, TypeError) as error:
            raise InvalidArgument(f"{which}: {error}") from error

    def _check_names(self, wanted: Any, which: str) -> None:
        """Refuse names of modules that the base does not have. PEFT passes over one if it finds another."""
        for name in [] if wanted is None or isinstance(wanted, str) else sorted(wanted):
            if not any(path == name or path.endswith(f".{name}") for path in self._names):
                known = {path.rpartition(".")[2]: None for path in self._names}
                names = [own for own in known if not own.isdecimal()]
                hint = did_you_mean(name, names) or f"; it has {some_of(names)}"
                raise InvalidArgument(f"{which} has {name!r}, and the base has no such module{hint}")

    def _check_folder(self, folder: str | os.PathLike[str], which: str) -> None:
        if not (Path(folder) / "adapter_config.json").is_file():
            raise InvalidArgument(
                f"{which}: {os.fspath(folder)} has no adapter_config.json: give a folder that save_pretrained wrote"
            )

    def _loaded(self, own: torch.nn.Module, folder: str | os.PathLike[str], which: str) -> Any:
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


def _refuse_quantized(path: str, module: torch.nn.Module) -> None:
    """Refuse a module whose weights are no numbers of floating point that an array can compute with, nor a layer of
    bitsandbytes."""
    if is_quantized(module):
        if any(p.requires_grad for p in module.parameters()):
            raise InvalidArgument(
                f"the base's quantized layer {path} has trainable parameters: freeze them with "
                "requires_grad_(False) before adapt"
            )
        return
    held = [p for p in module._parameters.values() if p is not None and not is_part(p)]  # `undivided` looks at parts
    whole = all((p.is_floating_point() or p.is_complex()) and type(p.data) is torch.Tensor for p in held)
    if not whole or "quantized" in type(module).__module__.split("."):  # torch.ao's have no parameters at all
        raise InvalidArgument(
            f"the base is quantized at {path or 'the top'}, a {type(module).__name__}, and an array computes with "
            "floating-point weights: load it by bitsandbytes (4 or 8 bits), or without quantization, in bfloat16"
        )


def _refuse_attention(model: Any, which: str) -> None:
    """Refuse LoRA on torch's attention, where PEFT puts the product of its factors into the weights in each forward."""
    for path, module in model.get_base_model().named_modules():
        if isinstance(getattr(module, "base_layer", None), torch.nn.MultiheadAttention):
            raise InvalidArgument(
                f"{which} has an adapter on {path}, a MultiheadAttention, which takes the weights of its parts and "
                "calls none of them: leave it out of target_modules, and name the linear layers beside it"
            )


def _refuse_trained(model: Any, which: str) -> None:
    """Refuse an adapter that would train a part of a layer which all models hold, and freeze that again."""
    trained = [
        path
        for path, module in model.named_modules()
        if is_held(module) and any(parameter.requires_grad for parameter in module.parameters())
    ]
    for path in trained:
        model.get_submodule(path).requires_grad_(False)
    if trained:
        raise InvalidArgument(
            f"{which} trains a bias in {trained[0]}, a layer that all models hold as it is (quantized, or divided over "
            "processes): give bias='none'"
        )


def _refuse_tied(model: Any, which: str) -> None:
    """Refuse parameters that lie in the same memory, as of one adapter in two places: an array copies each."""
    seen: dict[int, str] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.numel():
            other = seen.setdefault(parameter.data_ptr(), name)
            if other != name:
                raise InvalidArgument(
                    f"{which} has {other} and {name} in one memory, and an array has memory of "
                    "each: leave ensure_weight_tying out, or one of them out of target_modules"
                )


def places() -> Any:
    """Import what gives all models LoRA in the same places, which needs PEFT."""
    return importlib.import_module(".places", __package__)


def set_configs(model: Any, configs: dict[str, Any]) -> None:
    """Give a model of PEFT's other configs by name of the adapter, in every part that holds them."""
    model.peft_config = configs
    for part in model.modules():
        if "peft_config" in vars(part):
            part.peft_config = configs


def _nothing() -> None:
    """Stand in for a builder in a pickle, which has the base in the array alone."""


@contextlib.contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    if seed is None:
        yield
        return
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
