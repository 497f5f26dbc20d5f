# SPDX-License-Identifier: MIT
"""What the optimizers of an array share: a value of every hyper-parameter per model, and the way to and from torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch

from ..errors import InvalidArgument

Group = dict[str, Any]
Hyper = Mapping[str, torch.Tensor]


class ArrayOptimizer(torch.optim.Optimizer):
    """Base of the optimizers over parameters `[B, ...]`.

    A hyper-parameter in `per_model` is a number for all models or a sequence of B, and is kept in its group as a
    float64 tensor `[B]` on the parameters' device. One operator updates all parameters of all models in one pass.
    """

    torch_class: ClassVar[Callable[..., torch.optim.Optimizer]]
    per_model: ClassVar[tuple[str, ...]] = ()

    def __init__(self, params: Iterable[Any], defaults: Group) -> None:
        self.B = 0
        super().__init__(params, defaults)

    def add_param_group(self, param_group: Group) -> None:
        """As torch's; refuses parameters that are no array's and values that fit no model."""
        super().add_param_group(param_group)
        group = self.param_groups.pop()
        try:
            self._check_group(group)
        except InvalidArgument:
            if not self.param_groups:
                self.B = 0
            raise
        self.param_groups.append(group)

    def _check_group(self, group: Group) -> None:
        for parameter in group["params"]:
            if parameter.dim() == 0:
                raise InvalidArgument(
                    "a scalar parameter has no dimension for the models; an array's are [B, ...]"
                )
            self.B = self.B or parameter.size(0)
            if parameter.size(0) != self.B:
                raise InvalidArgument(
                    f"parameters of one array have the same B in dimension 0; got {self.B} and {parameter.size(0)} "
                    f"(shape {list(parameter.shape)})"
                )
        device = group["params"][0].device if group["params"] else None
        for name in self.per_model:
            group[name] = as_vector(group[name], self.B, name, device)
            check_range(name, group[name])
        group["steps"] = as_vector(group.get("steps", 0.0), self.B, "steps", device)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of every model. `closure`, if given, computes the losses `[B]` again and returns them."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self.update(group, group["params"], self.state, group)
        return loss

    def update(self, group: Group, params: Sequence[torch.Tensor], state: Any, hyper: Hyper) -> None:
        """Updates those of `params` that have a gradient; `hyper` holds the `[B]` vectors to use, `group` the flags."""
        params = [p for p in params if p.grad is not None]
        if params:
            for p in params:
                if p.grad.is_sparse:  # type: ignore[union-attr]
                    raise InvalidArgument(
                        f"{type(self).__name__} takes dense gradients; a parameter {list(p.shape)} has a sparse one"
                    )
            self.init_state(group, params, state)
            group["steps"].add_(1)
            self.apply(group, params, [p.grad for p in params], state, hyper)  # type: ignore[misc]

    def buffer_names(self, group: Group) -> tuple[str, ...]:
        """torch's names of the state tensors, shaped like the parameter, that `group` needs."""
        raise TypeError(f"{type(self).__name__} names no state")

    def init_state(self, group: Group, params: Sequence[torch.Tensor], state: Any) -> None:
        """Gives those of `params` that have none yet their zero buffers."""
        names = self.buffer_names(group)
        for parameter in params:
            for name in names:
                if name not in state[parameter]:
                    state[parameter][name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)

    def apply(
        self, group: Group, params: list[torch.Tensor], grads: list[torch.Tensor], state: Any, hyper: Hyper
    ) -> None:
        """The formula: one call of one operator."""
        raise TypeError(f"{type(self).__name__} gives no formula")

    def to_model(self, index: int, params: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """Model `index`'s optimizer over `params` (in this one's order), as torch's own, with a copy of its state."""
        params = list(params)
        groups, start = [], 0
        for group in self.param_groups:
            count = len(group["params"])
            groups.append({"params": params[start : start + count], **self._model_arguments(group, index)})
            start += count
        if start != len(params):
            raise InvalidArgument(f"this optimizer has {start} parameters, the model {len(params)}")
        own = [p for group in self.param_groups for p in group["params"]]
        optimizer = self.torch_class(groups)
        steps = {id(p): group["steps"] for group in self.param_groups for p in group["params"]}
        for source, target in zip(own, params, strict=True):
            if source in self.state:
                optimizer.state[target] = self._model_state(self.state[source], steps[id(source)], index)
        return optimizer

    def _model_arguments(self, group: Group, index: int) -> Group:
        return {name: float(group[name][index]) for name in self.per_model}

    def _model_state(self, state: dict[str, Any], steps: torch.Tensor, index: int) -> dict[str, Any]:
        buffers = {name: value[index].clone() for name, value in state.items()}
        return {"step": steps[index].to("cpu", torch.float32), **buffers}


def as_vector(value: Any, B: int, name: str, device: torch.device | None = None) -> torch.Tensor:
    """`value`, a number or B of them, as float64 `[B]`."""
    vector = torch.as_tensor(value, dtype=torch.float64, device=device)
    if vector.dim() == 0:
        return vector.repeat(B)
    if vector.shape != (B,):
        raise InvalidArgument(
            f"{name} has shape {list(vector.shape)} for {B} models: give one value, or one per model"
        )
    return vector.clone()


_RANGES: dict[str, tuple[float, float]] = {"beta1": (0.0, 1.0), "beta2": (0.0, 1.0), "rho": (0.0, 1.0)}


def check_range(name: str, vector: torch.Tensor) -> None:
    """Refuses what torch refuses: negative values, and betas outside [0, 1)."""
    low, high = _RANGES.get(name, (0.0, float("inf")))
    if name in ("dampening",):
        return
    closed = name == "rho"
    wrong = ~((vector >= low) & ((vector <= high) if closed else (vector < high)))
    if bool(wrong.any()):
        index = int(wrong.nonzero()[0])
        bounds = f"[{low:g}, {high:g}{']' if closed else ')'}"
        raise InvalidArgument(f"{name} of model {index} is {float(vector[index])!r}; it must lie in {bounds}")
