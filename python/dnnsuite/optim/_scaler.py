# SPDX-License-Identifier: MIT
"""Gradients of each model by itself: loss scaling for float16 with a scale per model, and clipping with the names and
arguments of torch.nn.utils.

torch's own functions clip likewise on tensors of arrays, see `dnnsuite.ops.torch_on_arrays`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from .. import ops
from .._shown import shown
from .._torch import foreach_norm
from ..errors import InvalidArgument, Unavailable
from ..ops.optimizer import by_kind, clip_by_norms_, in_memory_order, total_norms
from ..ops.shared import beside
from ._base import ArrayOptimizer
from ._partial import PartiallyFused
from ._plan import Group, Hyper, refuse_other_width, refuse_sparse
from ._values import as_vector, check_indices, check_range, fill_fresh, fresh_values, pick

_VECTORS = ("scale", "growth_factor", "backoff_factor", "growth_interval", "growth_tracker")


class GradScaler:
    """`torch.amp.GradScaler` with a scale per model: an overflow skips that model's step and lowers its scale alone.

    Use it like torch's: `scaler.scale(losses).sum().backward()`, `scaler.step(optimizer)`, `scaler.update()`, with
    losses `[B]`. The gradients are unscaled while the optimizer reads them; `unscale_` writes them unscaled, for code
    that looks at them or clips them. It works on any device. Frozen models keep their scale. With a `PartiallyFused`, a
    model steps if the gradients of both its parts are finite.

    Args:
        init_scale, growth_factor, backoff_factor, growth_interval: one number, or one per model.

    >>> import torch
    >>> from dnnsuite import nn, optim
    >>> array = nn.Linear(2, 1, B=2)
    >>> optimizer, scaler = optim.SGD(array.parameters(), lr=0.1), optim.GradScaler("cpu", init_scale=4.0, B=2)
    >>> scaler.scale(array(torch.ones(2, 8, 2)).mean((1, 2))).sum().backward()
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> scaler.get_scale().tolist()
    [4.0, 4.0]
    """

    def __init__(
        self,
        device: str | torch.device = "cuda",
        init_scale: Any = 2.0**16,
        growth_factor: Any = 2.0,
        backoff_factor: Any = 0.5,
        growth_interval: Any = 2000,
        enabled: bool = True,
        *,
        B: int,
    ) -> None:
        self.B, self._enabled = B, enabled
        where = torch.device(device) if enabled else None
        if where is not None and where.type == "cuda" and not torch.cuda.is_available():
            raise Unavailable(
                "GradScaler's device is 'cuda', but torch finds none", remedy="give device='cpu', or enabled=False"
            )
        given = {"scale": init_scale, "growth_factor": growth_factor, "backoff_factor": backoff_factor}
        given |= {"growth_interval": growth_interval, "growth_tracker": 0}
        self._vectors = {name: as_vector(value, B, name, where) for name, value in given.items()}
        ranges = {"scale": (0, float("inf")), "growth_factor": (1, float("inf")), "backoff_factor": (0, 1)}
        for name, (low, high) in ranges.items():
            vector = self._vectors[name]
            if not bool(((vector > low) & (vector < high)).all()):
                raise InvalidArgument(f"{name} must be between {low} and {high} in every model, got {vector.tolist()}")
        self._found = torch.zeros(B, dtype=torch.bool, device=where)
        self._active = torch.ones(B, dtype=torch.bool, device=where)
        self._unscaled: set[int] = set()

    def __repr__(self) -> str:
        return f"GradScaler(B={self.B}, scale={shown(self.get_scale().tolist())}, enabled={self._enabled})"

    def is_enabled(self) -> bool:
        """Return True if it scales."""
        return self._enabled

    def get_scale(self) -> torch.Tensor:
        """Return the models' scales, float64 `[B]`."""
        return self._vectors["scale"].clone()

    def scale(self, losses: torch.Tensor) -> torch.Tensor:
        """Multiply losses[b] by the scale of model b."""
        if not self._enabled:
            return losses
        if losses.dim() == 0 or losses.size(0) != self.B:
            raise InvalidArgument(
                f"the scaler of {self.B} models scales losses [{self.B}, ...], got {list(losses.shape)}: sum them after"
            )
        return losses * beside(self._vectors["scale"].to(losses.dtype), losses)

    def _look(self, groups: Sequence[Group]) -> list[torch.Tensor]:
        """Return the gradients; note the models with one that is not finite."""
        grads = [p.grad for group in groups for p in group["params"] if p.grad is not None]
        if grads:
            refuse_sparse(grads, grads)
            active = groups[0]["active"]
            refuse_other_width(grads, active)
            self._found.logical_or_(~torch.isfinite(ops.gradient_norms(grads)) & active)
            self._active.copy_(active)
        return grads

    def _look_at_plain(self, optimizer: PartiallyFused) -> None:
        """Note the models with a gradient of an unfused part that is not finite."""
        finite = [
            all(bool(torch.isfinite(norm)) for norm in foreach_norm(grads)) if grads else True
            for grads in optimizer.plain_gradients()
        ]
        active = optimizer.fused.active
        self._active.copy_(active)
        bad = ~torch.tensor(finite, device=self._found.device)
        self._found.logical_or_(bad & active.to(bad.device))

    @torch.no_grad()
    def unscale_(self, optimizer: ArrayOptimizer | PartiallyFused) -> None:
        """Divide the gradients by the scales, in place."""
        if not self._enabled:
            return
        if id(optimizer) in self._unscaled:
            raise InvalidArgument("unscale_ was called for this optimizer already since the last update()")
        kinds: dict[Any, list[torch.Tensor]] = {}
        fused = optimizer.fused if isinstance(optimizer, PartiallyFused) else optimizer
        factor = 1.0 / self._vectors["scale"]
        for grad in self._look(fused.param_groups):
            kinds.setdefault(grad.dtype, []).append(grad)
        for grads in kinds.values():
            ops.scale_gradients_(grads, factor)
        if isinstance(optimizer, PartiallyFused):
            self._look_at_plain(optimizer)
            optimizer.scale_plain_(factor)
        self._unscaled.add(id(optimizer))

    @torch.no_grad()
    def step(self, optimizer: ArrayOptimizer | PartiallyFused) -> None:
        """Step the optimizer for every model whose gradients are finite."""
        if not self._enabled:
            optimizer.step()
            return
        if not isinstance(optimizer, (ArrayOptimizer, PartiallyFused)):
            raise InvalidArgument(
                f"this scaler steps optimizers of dnnsuite.optim, got {type(optimizer).__name__}; use torch.amp's"
            )
        done = id(optimizer) in self._unscaled
        if isinstance(optimizer, PartiallyFused):
            if not done:
                self._look(optimizer.fused.param_groups)
                self._look_at_plain(optimizer)
            optimizer.step_parts(None if done else 1.0 / self._vectors["scale"], self._found)
            return
        self.step_groups(optimizer, optimizer.param_groups, optimizer.state, unscaled=done)

    @torch.no_grad()
    def step_groups(
        self,
        optimizer: ArrayOptimizer,
        groups: Sequence[Group],
        state: Any,
        hypers: Sequence[Hyper] | None = None,
        unscaled: bool = False,
    ) -> None:
        """Call `optimizer.step_groups` for the models whose gradients are finite; the others skip the step."""
        if not self._enabled:
            optimizer.step_groups(groups, state, hypers)
            return
        if not unscaled:
            self._look(groups)
        factor = None if unscaled else 1.0 / self._vectors["scale"]
        optimizer.step_groups(groups, state, hypers, factor, self._found)

    @torch.no_grad()
    def update(self, new_scale: Any = None) -> None:
        """Lower the scale of a model that overflowed; raise that of one that did not for `growth_interval` steps."""
        if not self._enabled:
            return
        v = self._vectors
        if new_scale is not None:
            v["scale"].copy_(as_vector(new_scale, self.B, "new_scale", v["scale"].device))
        else:
            tracker = v["growth_tracker"] + 1
            grown = tracker >= v["growth_interval"]
            larger = v["scale"] * v["growth_factor"]
            kept = torch.where(grown & torch.isfinite(larger.float()), larger, v["scale"])
            scale = torch.where(self._found, v["scale"] * v["backoff_factor"], kept)
            tracker = torch.where(grown | self._found, 0.0, tracker)
            v["scale"].copy_(torch.where(self._active, scale, v["scale"]))
            v["growth_tracker"].copy_(torch.where(self._active, tracker, v["growth_tracker"]))
        self._found.zero_()
        self._active.fill_(True)
        self._unscaled.clear()

    def narrow(self, start: int, length: int) -> GradScaler:
        """Make a scaler of some of the models, which shares their scales.

        `.data`, because only that starts a version counter of its own: autograd may have saved this part's scales
        while another part, in another thread, updates its own.
        """
        part = GradScaler.__new__(GradScaler)
        part.B, part._enabled, part._unscaled = length, self._enabled, set()
        part._vectors = {name: vector.data.narrow(0, start, length) for name, vector in self._vectors.items()}
        part._found, part._active = (t.data.narrow(0, start, length) for t in (self._found, self._active))
        return part

    def select(self, indices: Sequence[int | None], init_scale: Any = 2.0**16) -> None:
        """Let slot k continue as model `indices[k]`; a new one (None) starts at `init_scale` with model 0's factors."""
        chosen = check_indices(indices, self.B)
        scales = fresh_values("init_scale", init_scale, chosen.count(None))
        for name, vector in self._vectors.items():
            new = pick(vector, chosen)
            starts = {"scale": scales, "growth_tracker": [0.0] * len(scales)}
            new = fill_fresh(new, chosen, starts.get(name, [float(vector[0])] * len(scales)))
            self._vectors[name] = vector.copy_(new) if len(chosen) == self.B else new  # a runner may hold views
        self.B = len(chosen)
        found = self._found.new_zeros(self.B)
        self._found = self._found.zero_() if len(self._found) == self.B else found
        self._active = self._active.fill_(True) if len(self._active) == self.B else torch.ones_like(found)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the state that a resumed run needs."""
        return {name: vector.clone() for name, vector in self._vectors.items()} if self._enabled else {}

    def load_state_dict(self, state_dict: dict[str, torch.Tensor]) -> None:
        """Load a result of `state_dict`."""
        for name in _VECTORS if self._enabled else ():
            self._vectors[name].copy_(as_vector(state_dict[name], self.B, name))


def get_total_norm(
    tensors: torch.Tensor | Iterable[torch.Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> torch.Tensor:
    """Return the norm `[B]` over all tensors of each model, in their dtype.

    Args:
        tensors: tensors `[B, ...]`, for example the gradients of an array.
        norm_type: order of the norm: a positive number, or infinity.
        error_if_nonfinite: refuse norms that are not finite; the message names the models.
        foreach: ignored; torch chooses between two implementations by it.

    >>> import torch
    >>> from dnnsuite import optim
    >>> optim.get_total_norm([torch.tensor([[3.0, 4.0], [0.0, 1.0]])]).tolist()
    [5.0, 1.0]
    """
    tensors = _listed(tensors)
    if not tensors:
        raise InvalidArgument("there is no gradient, so the number of models is not known")
    norms = total_norms(tensors, norm_type, error_if_nonfinite)
    return norms.to(_result_dtype(tensors))


@torch.no_grad()
def clip_grad_norm_(
    parameters: torch.Tensor | Iterable[torch.Tensor],
    max_norm: Any,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> torch.Tensor:
    """Clip each model's gradients to a norm, in place, as `torch.nn.utils.clip_grad_norm_` does for one model.

    A model's norm covers all of its gradients together and depends neither on the other models nor on the number of
    threads. Gradients of a model within its norm are not written. `max_grad_norm` of an optimizer does the same
    without writing gradients at all.

    Args:
        parameters: parameters `[B, ...]` of an array.
        max_norm: largest norm, one number or one per model.
        norm_type: order of the norm: a positive number, or infinity.
        error_if_nonfinite: refuse norms that are not finite; the message names the models.
        foreach: ignored; torch chooses between two implementations by it.

    Returns:
        The norms `[B]` before clipping.

    >>> import torch
    >>> from dnnsuite import nn, optim
    >>> array = nn.Linear(1, 1, bias=False, B=2)
    >>> (array(torch.ones(2, 1, 1)) * torch.tensor([3.0, 0.5])[:, None, None]).sum().backward()
    >>> optim.clip_grad_norm_(array.parameters(), 1.0).tolist()
    [3.0, 0.5]
    >>> [round(gradient, 3) for gradient in array.weight.grad.flatten().tolist()]
    [1.0, 0.5]
    """
    grads = _gradients(parameters)
    B = grads[0].size(0)
    limit = as_vector(max_norm, B, "max_norm", grads[0].device)
    check_range("max_norm", limit.nan_to_num(posinf=0.0))
    norms = total_norms(grads, norm_type, error_if_nonfinite)
    clip_by_norms_(grads, limit, norms)
    return norms.to(_result_dtype(grads))


@torch.no_grad()
def clip_grad_value_(
    parameters: torch.Tensor | Iterable[torch.Tensor], clip_value: Any, foreach: bool | None = None
) -> None:
    """Clip each gradient to [-clip_value, clip_value], in place, like `torch.nn.utils.clip_grad_value_`.

    Args:
        parameters: parameters `[B, ...]` of an array.
        clip_value: one number, or one per model.
        foreach: ignored; torch chooses between two implementations by it.
    """
    grads = _gradients(parameters)
    limit = as_vector(clip_value, grads[0].size(0), "clip_value", grads[0].device)
    check_range("clip_value", limit.nan_to_num(posinf=0.0))
    for mine in by_kind(grads):
        ops.clamp_gradients_(mine, limit.to(mine[0].device))


def _listed(tensors: torch.Tensor | Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _gradients(parameters: torch.Tensor | Iterable[torch.Tensor]) -> list[torch.Tensor]:
    grads = [p.grad for p in _listed(parameters) if p.grad is not None]
    if not grads:
        raise InvalidArgument("no parameter has a gradient, so there is nothing to clip: call backward first")
    refuse_sparse(grads, grads)
    return in_memory_order(grads)


def _result_dtype(grads: list[torch.Tensor]) -> torch.dtype:
    return torch.float64 if any(g.dtype == torch.float64 for g in grads) else torch.float32
