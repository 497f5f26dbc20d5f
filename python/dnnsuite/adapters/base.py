# SPDX-License-Identifier: MIT
"""Models over one base, whose tensors are not copied."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..nn.functional.convolution import channels_last


class SharedBase:
    """A base that models have in common.

    Each model is a copy of the modules that holds the base's own storage. What an adapter does not train is one and
    the same parameter in all models, without a gradient; what it trains is copied for that model. The base itself
    stays as it is, but for the order in memory of a convolution's filters. Running statistics of norms, which a
    forward writes, are each model's own; with `statistics` those of norms in eval mode are in common, too, for models
    that become an array, which copies them.
    """

    def __init__(self, base: torch.nn.Module, statistics: bool = False) -> None:
        self._base, self._statistics = base, statistics
        _lay_out_filters(base)
        self._whole = [module for module in base.modules() if is_held(module)]  # is the models' own layer
        inside = {id(p) for module in self._whole for p in module.parameters()}
        self._parameters = [p for p in base.parameters() if id(p) not in inside]
        self._frozen = {id(p): torch.nn.Parameter(p.detach(), requires_grad=False) for p in self._parameters}

    def model(self, adapt: Callable[[torch.nn.Module], torch.nn.Module], writes: bool = False) -> torch.nn.Module:
        """Return what `adapt` makes of a copy of the base's modules.

        Args:
            writes: True if `adapt` may write into parameters, as OLoRA does: it gets copies, and parameters that it has
                changed stay the model's own.
        """
        memo: dict[int, Any] = {
            id(p): torch.nn.Parameter(p.detach().clone() if writes else p.detach(), requires_grad=p.requires_grad)
            for p in self._parameters
        }
        frozen_of = {id(own): self._frozen[key] for key, own in memo.items()}
        memo.update({id(buffer): buffer for buffer in self._buffers(self._statistics)})
        memo.update({id(module): module for module in self._whole})
        model = adapt(copy.deepcopy(self._base, memo))
        self._settle(model, frozen_of)
        return model

    def names_in(self, model: torch.nn.Module) -> frozenset[str]:
        """Find the tensors of a model that all models have in common, by their names in its `state_dict`."""
        common = {id(tensor) for tensor in (*self._frozen.values(), *self._buffers())}
        held = model.state_dict(keep_vars=True)
        return frozenset(name for name, value in held.items() if id(value) in common)

    def addresses(self) -> frozenset[int]:
        """Return where the parameters lie that all models have in common."""
        return frozenset(p.data_ptr() for p in self._frozen.values())

    def _buffers(self, statistics: bool = False) -> Iterator[torch.Tensor]:
        """Yield buffers of the base that no forward writes; with `statistics` those of norms in eval mode, too."""
        for module in self._base.modules():
            if not hasattr(module, "running_mean") or (statistics and not module.training):
                yield from (buffer for buffer in module._buffers.values() if buffer is not None)

    @staticmethod
    def _settle(model: torch.nn.Module, frozen_of: dict[int, torch.nn.Parameter]) -> None:
        """Put the parameters that all models share in the places of those that `model` does not train."""
        copies: dict[int, torch.nn.Parameter] = {}
        for module in model.modules():
            for name, parameter in list(module._parameters.items()):
                if parameter is None or id(parameter) not in frozen_of:
                    continue
                shared = frozen_of[id(parameter)]
                if id(parameter) not in copies and (parameter.requires_grad or _is_other(parameter, shared)):
                    copies[id(parameter)] = torch.nn.Parameter(parameter.detach().clone(), parameter.requires_grad)
                setattr(module, name, copies.get(id(parameter), shared))
            if isinstance(module, torch.nn.RNNBase):  # which notes its weights a second time
                module.__setstate__(module.__getstate__())


def is_held(module: torch.nn.Module) -> bool:
    """Return True for a layer that the models hold as it is: quantized, or divided over processes."""
    return is_quantized(module) or hasattr(module, "held_by_models")


def is_quantized(module: torch.nn.Module) -> bool:
    """Return True for a layer of bitsandbytes with quantized weights."""
    kind = type(module)
    return kind.__module__.startswith("bitsandbytes.") and kind.__name__ in ("Linear4bit", "Linear8bitLt")


def _is_other(parameter: torch.Tensor, shared: torch.Tensor) -> bool:
    """Return True if an adapter has given a parameter other values than the base has."""
    return parameter.data_ptr() != shared.data_ptr() and not torch.equal(parameter, shared)


@torch.no_grad()
def _lay_out_filters(base: torch.nn.Module) -> None:
    """Lay filters out as an array convolves with them, or it would hold them once more in that order."""
    for module in base.modules():
        if isinstance(module, (torch.nn.Conv2d, torch.nn.Conv3d, torch.nn.ConvTranspose2d)):
            weight = module.weight
            weight.data = channels_last(weight.data.unsqueeze(0)).squeeze(0)
