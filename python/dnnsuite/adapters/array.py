# SPDX-License-Identifier: MIT
"""Array of PEFT models over one base."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import torch

from .. import _under_way as under_way
from .._fuse.array import Array
from .._fuse.single_model import model_of
from ..errors import InvalidArgument
from ..nn.sharing import is_shared
from .builder import AdapterBuilder, places, set_configs

#: Methods of PEFT's that make something else of the one adapter of a model.
_OF_ONE_MODEL = frozenset([
    "add_adapter", "add_weighted_adapter", "delete_adapter", "load_adapter", "set_adapter", "merge_adapter",
    "merge_and_unload", "unmerge_adapter", "unload",
])  # fmt: skip


class AdapterArray(Array):
    """B PEFT models over one base as one module; `dnnsuite.adapt` makes it.

    `array[i]` is an ordinary `PeftModel` with the adapter of model i and a copy of the base.
    """

    configs: list[Any]
    _builder: AdapterBuilder | None

    def _finished(self, model: Any, index: int) -> Any:
        places().strip(model)
        (name,) = model.peft_config
        set_configs(model, {name: copy.deepcopy(self.configs[index])})
        return model

    def __getattr__(self, name: str) -> Any:
        if name in _OF_ONE_MODEL:
            return lambda *args, **kwargs: _refuse(name)
        return super().__getattr__(name)

    @property
    def _ddp_params_and_buffers_to_ignore(self) -> list[str]:
        """The base's tensors by name, which DistributedDataParallel, where it asks for this, need not make equal."""
        held = (*self.named_parameters(), *self.named_buffers())
        return [name for name, tensor in held if is_shared(tensor)]

    def save_pretrained(self, folder: str | PathLike[str], **options: Any) -> list[Path]:
        """Save the adapter of model i in `folder/i`, as PEFT does; PEFT's method gets the `options`.

        Returns:
            The folders; `peft.PeftModel.from_pretrained` and `dnnsuite.adapt` take each of them.
        """
        under_way.finish(self)
        folders = [Path(folder) / str(index) for index in range(self.B)]
        if any(type(part).__name__ == "EmbeddingOfArray" for part in self.modules()):
            options.setdefault("save_embedding_layers", False)  # of the base, of which this process has a part
        for index, own in enumerate(folders):
            model: Any = self._finished(model_of(self._root, index, copied=False), index)
            model.save_pretrained(str(own), **options)
        return folders

    def padding(self) -> str:
        """Return why `adapters.losses` compute with padded batches; "" if they run the base over real tokens alone."""
        from .rows import NotInRows, rows_of  # needs PEFT

        try:
            rows_of(self)
        except NotInRows as reason:
            return str(reason)
        return ""

    @contextlib.contextmanager
    def disable_adapter(self) -> Iterator[None]:
        """Context manager: the array computes what the base does, for every model."""
        layers: list[Any] = [part for part in self.modules() if hasattr(part, "lora_A") or hasattr(part, "enabled")]
        if any(not hasattr(layer, "enabled") for layer in layers) or not layers:
            _refuse("disable_adapter")
        saved: list[Any] = [part for part in self.modules() if "modules_to_save" in part._modules]
        try:
            for layer in layers:
                layer.enabled = False
            for module in saved:
                module.enable_adapters(False)
            yield
        finally:
            for layer in layers:
                layer.enabled = True
            for module in saved:
                module.enable_adapters(True)

    def append(self, model: Any, *companions: Any, **fresh: Any) -> None:
        """Add a model at the end: a PEFT model, a config or a folder, or a list of them. `fresh` are its
        hyper-parameters."""
        super().append(self._models(model), *companions, **fresh)

    def replace(self, index: int | Sequence[int], model: Any, *companions: Any, **fresh: Any) -> None:
        """Put a PEFT model, a config or a folder into slot `index`; or a list of them into several."""
        super().replace(index, self._models(model), *companions, **fresh)

    def _models(self, given: Any) -> Any:
        return [self._model(one) for one in given] if isinstance(given, (list, tuple)) else self._model(given)

    def _lora_layers(self) -> dict[str, Any]:
        """Find the layers in which models have ranks of their own, by path."""
        return {path: part for path, part in self.named_modules() if hasattr(part, "enabled")}

    def _model(self, model: Any) -> torch.nn.Module:
        if isinstance(model, torch.nn.Module):
            return model
        if self._builder is None:
            raise InvalidArgument(
                "this array was unpickled, without the base that it was made of: give a model of PEFT's in place of "
                "a config"
            )
        return self._builder.model(model, "the new config")

    def _select(
        self,
        slots: Sequence[int | None],
        models: dict[int, torch.nn.Module],
        companions: Sequence[Any],
        fresh: dict[str, Any] | None = None,
    ) -> None:
        for model in models.values():
            places().check(self._lora_layers(), model)
        with contextlib.ExitStack() as stack:
            new = {slot: stack.enter_context(_with_config_of(self, model)) for slot, model in models.items()}
            super()._select(slots, models, companions, fresh)
        self.configs = [new[k] if s is None else copy.deepcopy(self.configs[s]) for k, s in enumerate(slots)]

    def narrow(self, start: int, length: int) -> Array:
        part: Any = super().narrow(start, length)
        part.configs = self.configs[start : start + length]
        return part


def as_adapter_array(array: Any, configs: list[Any], builder: AdapterBuilder) -> AdapterArray:
    """Make `array`, of models that have the first's config, an array whose models have `configs`."""
    array.__class__ = AdapterArray
    array.__dict__.update(configs=configs, _builder=builder)
    made: AdapterArray = array
    return made


def _refuse(name: str) -> NoReturn:
    raise InvalidArgument(
        f"{name} is for one model of PEFT's: call it on array[i], and put the model back with array.replace(i, model)"
    )


@contextlib.contextmanager
def _with_config_of(array: Any, model: Any) -> Iterator[Any]:
    """Give `model` the config that all models of `array` seem to have; the value is a copy of its own."""
    known = getattr(model, "peft_config", None)
    if not isinstance(known, dict) or len(known) != 1:
        raise InvalidArgument(
            f"an array of adapters takes models of PEFT's with one adapter; got a {type(model).__name__}"
        )
    (own,) = known.values()
    try:
        places().fill([model], {path: layer.layers[0] for path, layer in array._lora_layers().items()})
        set_configs(model, copy.deepcopy(array._root.peft_config))
        yield copy.deepcopy(own)
    finally:
        places().strip(model)
        set_configs(model, known)
