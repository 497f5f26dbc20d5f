# SPDX-License-Identifier: MIT
"""An optimizer's step over lists of stacked tensors, in which every parameter and state is read and written once, and
norms, scaling and clamping of each model's gradients, whatever their devices, dtypes and orders in memory.

Tensors are [B, ...], each model's part contiguous, with any stride between models; hyper-parameters are float64 [B] on
the same device. Formulas are those of torch.optim; `RULES` lists the tensors that each takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from ..errors import InvalidArgument
from .library import fake, fakes_like, library
from .memory_order import memory_order


class UpdateRule(NamedTuple):
    """Tensors that an update rule takes, in the order in which the lists hold them."""

    hyper: tuple[str, ...]
    states: tuple[str, ...]
    scalars: tuple[str, ...]


_ADAM = ("lr", "beta1", "beta2", "eps", "weight_decay")
_MOMENTS = ("exp_avg", "exp_avg_sq")
_SGD = ("lr", "momentum", "dampening", "weight_decay")
_RMSPROP = ("lr", "alpha", "eps", "weight_decay", "momentum")

RULES = {
    "sgd": UpdateRule(_SGD, (), ("step",)),
    "sgd_momentum": UpdateRule(_SGD, ("momentum_buffer",), ("step",)),
    "adam": UpdateRule(_ADAM, _MOMENTS, ("step",)),
    "amsgrad": UpdateRule(_ADAM, (*_MOMENTS, "max_exp_avg_sq"), ("step",)),
    "nadam": UpdateRule((*_ADAM, "momentum_decay"), _MOMENTS, ("step", "mu_product")),
    "radam": UpdateRule(_ADAM, _MOMENTS, ("step",)),
    "adamax": UpdateRule(_ADAM, ("exp_avg", "exp_inf"), ("step",)),
    "lion": UpdateRule(("lr", "beta1", "beta2", "weight_decay"), ("exp_avg",), ("step",)),
    "adadelta": UpdateRule(("lr", "rho", "eps", "weight_decay"), ("square_avg", "acc_delta"), ("step",)),
    "adagrad": UpdateRule(("lr", "lr_decay", "weight_decay", "eps"), ("sum",), ("step",)),
    "rmsprop": UpdateRule(_RMSPROP, ("square_avg",), ("step",)),
    "rmsprop_momentum": UpdateRule(_RMSPROP, ("square_avg", "momentum_buffer"), ("step",)),
    "rmsprop_centered": UpdateRule(_RMSPROP, ("square_avg", "grad_avg"), ("step",)),
    "rmsprop_centered_momentum": UpdateRule(_RMSPROP, ("square_avg", "grad_avg", "momentum_buffer"), ("step",)),
    "asgd": UpdateRule(("lr", "lambd", "alpha", "t0", "weight_decay"), ("ax",), ("step", "eta")),
    "rprop": UpdateRule(
        ("lr", "etaminus", "etaplus", "step_size_min", "step_size_max"), ("prev", "step_size"), ("step",)
    ),
    "scale": UpdateRule(("factor",), (), ()),
    "clamp": UpdateRule(("limit",), (), ()),
}
"""Update rules by name. "scale" and "clamp" change gradients, which are given as `params` and as `grads`."""

_plan = library.optimizer_plan.default
_step = library.optimizer_step_.default
_HALVES = (torch.bfloat16, torch.float16)


fakes_like(None, "optimizer_step_")


def optimizer_plan(rule: str, params: Sequence[Tensor], states: Sequence[Tensor], scalars: Sequence[Tensor]) -> Tensor:
    """Make the plan of `optimizer_step_`, that is, the tensors that it writes. Make it once and use it for every step.

    The plan points to the memory of the tensors and writes to it for as long as it lives. Make a new one if a tensor
    moves (`p.data = ...`). Copies of a plan are refused.

    Args:
        rule: one of `RULES`.
        params: parameters, [B, ...] each.
        states: the first state of every parameter, then the second of every parameter, and so on.
        scalars: float64 [B] for each parameter, in the same order; all zeros before the first step.
    """
    plan: Tensor = _plan(rule, params, states, scalars)
    vars(plan)["holds"] = _Memory([t.untyped_storage() for t in (*params, *states, *scalars)])
    return plan


class _Memory:
    """Memory that a plan points to. Belongs to one plan: a copy would point to it without holding it."""

    def __init__(self, storages: list[torch.UntypedStorage]) -> None:
        self._storages = storages

    def __reduce__(self) -> NoReturn:  # of deepcopy and pickle
        raise InvalidArgument("a plan of an optimizer's step cannot be copied: make one with ops.optimizer_plan")


def optimizer_step_(
    plan: Tensor,
    grads: Sequence[Tensor],
    hyper: Sequence[Tensor],
    factor: Tensor | None = None,
    active: Tensor | None = None,
    tickets: Tensor | None = None,
    maximize: bool = False,
    decoupled: bool = False,
    nesterov: bool = False,
    written: Sequence[Tensor] = (),
) -> None:
    """Do a step of every model, or of the `active` ones (bool [B]); the others keep every bit, and their step counts.

    Args:
        factor: float64 [B], by which gradients are multiplied as they are read, so that unscaling and clipping need no
            pass of their own.
        tickets: int32 zeros on CUDA, one for each parameter and model; they are zeros again after the step.
        written: the plan's parameters, states and scalars; needed only under a `TorchDispatchMode`.

    Raises:
        InvalidArgument: the plan was not made by `optimizer_plan`, or is a copy.
    """
    if not hasattr(plan, "holds"):
        raise InvalidArgument("plan must be what ops.optimizer_plan made, and no copy of it: it would hold no memory")
    _step(plan, written, grads, hyper, factor, active, tickets, maximize, decoupled, nesterov)


def optimizer_(
    rule: str,
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: Sequence[Tensor],
    scalars: Sequence[Tensor],
    hyper: Sequence[Tensor],
    factor: Tensor | None = None,
    active: Tensor | None = None,
    maximize: bool = False,
    decoupled: bool = False,
    nesterov: bool = False,
) -> None:
    """Make a plan and do one step. On a CPU, 16-bit tensors are computed in float32 and rounded once, as on CUDA."""
    if not params:
        return
    flags = (maximize, decoupled, nesterov)
    tickets = None
    if params[0].is_cuda:
        count = len(params) * params[0].size(0)
        tickets = torch.zeros(count, dtype=torch.int32, device=params[0].device)
    if params[0].dtype not in _HALVES or params[0].is_cuda:
        plan = optimizer_plan(rule, params, states, scalars)
        all_of_them = [*params, *states, *scalars]
        return optimizer_step_(plan, grads, hyper, factor, active, tickets, *flags, all_of_them)
    written = [*params, *states]
    wide = [t.float() for t in written]
    gradients = wide if grads is params else [g.float() for g in grads]
    plan = optimizer_plan(rule, wide[: len(params)], wide[len(params) :], scalars)
    all_of_them = [*wide, *scalars]
    optimizer_step_(plan, gradients[: len(params)], hyper, factor, active, tickets, *flags, all_of_them)
    for narrow, result in zip(written, wide, strict=True):
        narrow.copy_(result)


_norms = library.gradient_norms.default
_HALVES = (torch.bfloat16, torch.float16)
fake("gradient_norms", lambda grads: grads[0].new_empty(grads[0].size(0), dtype=torch.float64))


def as_real(x: Tensor) -> Tensor:
    """View complex numbers as pairs of real ones in a last dimension, as torch's optimizers do; other tensors stay."""
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


def gradient_norms(grads: Sequence[Tensor], norm_type: float = 2.0) -> Tensor:
    """Compute the norm of all gradients of each model together: float64 [B], from gradients [B, ...] on one device.

    The order of the sum depends only on the shapes. The sum is in double precision, so for gradients of at most 32 bits
    a norm is finite if and only if all of them are.
    """
    if not grads:
        raise InvalidArgument("gradient_norms: grads is empty, so the number of models is not known")
    if norm_type == 2.0:  # that of the pairs; other norms of complex numbers are not
        grads = [as_real(g) for g in grads]
    kinds = {g.dtype for g in grads}
    if len(kinds) > 1 or (kinds & set(_HALVES) and not grads[0].is_cuda):
        wide = torch.float64 if torch.float64 in kinds else torch.float32
        grads = [g.to(wide) for g in grads]
    return _norms(grads, float(norm_type))


def scale_gradients_(grads: Sequence[Tensor], factor: Tensor) -> None:
    """Multiply grads[i][b] by factor[b] in place; `factor` is float64 [B].

    Gradients of a model whose factor is 1 are not touched.
    """
    grads = [as_real(g) for g in grads]
    optimizer_("scale", grads, grads, [], [], [factor], active=factor != 1)


def clamp_gradients_(grads: Sequence[Tensor], limit: Tensor) -> None:
    """Clamp grads[i][b] to [-limit[b], limit[b]] in place; `limit` is float64 [B]. NaN stays NaN."""
    optimizer_("clamp", grads, grads, [], [], [limit])


def by_kind(grads: Sequence[Tensor]) -> list[list[Tensor]]:
    """Group gradients by device and dtype, in a fixed order."""
    kinds: dict[Any, list[Tensor]] = {}
    for grad in grads:
        kinds.setdefault((grad.device, grad.dtype), []).append(grad)
    return list(kinds.values())


def in_memory_order(grads: Sequence[Tensor]) -> list[Tensor]:
    """View gradients `[B, ...]` with their dimensions in the order in which they lie in memory, to be written.

    Raises:
        InvalidArgument: for gradients that are not those of one number of models.
    """
    sizes = sorted({g.size(0) if g.dim() else 0 for g in grads})
    if len(sizes) > 1:
        raise InvalidArgument(f"gradients of one array have the same B in dimension 0, got {sizes}")
    return [grad.permute(memory_order(grad)) for grad in grads]


def total_norms(grads: Sequence[Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Tensor:
    """Compute the norm of all of each model's gradients together, float64 `[B]`."""
    if not norm_type > 0:
        raise InvalidArgument(f"norm_type is {norm_type!r}; it must be a positive number, or infinity")
    kinds = by_kind(grads)
    norms = torch.stack([gradient_norms(mine, norm_type).to(grads[0].device) for mine in kinds])
    total = norms[0] if len(kinds) == 1 else torch.linalg.vector_norm(norms, norm_type, dim=0)
    if error_if_nonfinite:
        wrong = [index for index, norm in enumerate(total.isfinite().tolist()) if not norm]
        if wrong:
            raise InvalidArgument(
                f"the gradients of models {wrong} have a norm that is not finite; freeze them, or clip with "
                "error_if_nonfinite=False"
            )
    return total


def clip_factors(limit: Tensor, norms: Tensor, grads: Sequence[Tensor]) -> Tensor:
    """Compute the factors that scale each model's gradients to the norm `limit`, float64 `[B]`; 1 if the norm is no
    larger.

    For float32 gradients they are rounded to float32: zeros among the gradients, as of an adapter padded to a larger
    rank, change the order of a norm's sum and its last bits, which must not reach the parameters.
    """
    factors = (limit / (norms + 1e-6)).clamp(max=1.0)
    return factors if any(g.dtype == torch.float64 for g in grads) else factors.float().double()


def clip_by_norms_(grads: Sequence[Tensor], limit: Any, norms: Tensor) -> None:
    """Scale each model's gradients to the norm `limit`, a number or `[B]`, if its own of `norms` `[B]` is larger."""
    if isinstance(limit, (int, float)):
        most = norms.new_full((), limit, dtype=torch.float64)
    else:
        most = torch.as_tensor(limit, dtype=torch.float64, device=norms.device)
    factor = clip_factors(most, norms.double(), grads).expand(grads[0].size(0)).contiguous()
    for mine in by_kind(in_memory_order(grads)):
        scale_gradients_(mine, factor.to(mine[0].device))
