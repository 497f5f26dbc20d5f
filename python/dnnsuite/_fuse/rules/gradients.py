# SPDX-License-Identifier: MIT
"""Rules of gradients that a forward takes itself, as a gradient penalty does."""

from __future__ import annotations

from typing import Any

import torch

from ...nn.model_tensor import ModelTensor, NotFusable, Refused, expanded, outside, wrap
from ...nn.sharing import is_shared, own
from .table import FINDERS, rule, settle


def gradients(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute `torch.autograd.grad` of all models at once.

    They share nothing, so the gradient of `[B, ...]` by `[B, ...]` holds each model's own."""
    outputs, inputs = (_listed(given) for given in args[:2])
    settle()
    if any(type(x) is not ModelTensor for x in (*outputs, *inputs)):
        raise NotFusable("autograd.grad of or by a tensor that all models share")
    if any(is_shared(x.value) for x in inputs):
        raise NotFusable("autograd.grad by a tensor that is in memory once for all models")
    options = dict(kwargs)
    if options.get("is_grads_batched"):
        raise NotFusable("autograd.grad of batched gradients")
    given = options.pop("grad_outputs", None)
    factors = [None] * len(outputs) if given is None else _listed(given)
    pairs = zip(outputs, factors, strict=True)
    options["grad_outputs"] = [_ones(y) if g is None else expanded(g, y.B) for y, g in pairs]
    try:
        with outside():
            found = torch.autograd.grad([y.value for y in outputs], [x.value for x in inputs], **options)
    except RuntimeError as error:
        raise NotFusable(f"autograd.grad: {str(error).splitlines()[0]}") from error
    if any(gradient is None for gradient in found):
        raise NotFusable("autograd.grad by a tensor that is not used")
    return tuple(map(wrap, found))


def _listed(given: Any) -> list[Any]:
    return [given] if isinstance(given, torch.Tensor) else list(given)


def _ones(output: ModelTensor) -> torch.Tensor:
    """Make the factors of an output that is one number per model."""
    if output.shape.numel() != 1:
        raise NotFusable("autograd.grad of more than one number without grad_outputs")
    return torch.ones_like(output.value)


FINDERS.append(lambda func: gradients if func is torch.autograd.grad else None)


@rule("requires_grad", writes=True)
def requires_grad(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Let a tensor take a gradient. Its gradient is each model's own, so it has to be in the memory of each."""
    target = args[0]
    settle()
    wanted = args[1] if len(args) > 1 else kwargs.get("requires_grad", True)
    if wanted and is_shared(target.value) and not target.value.requires_grad:
        target.become(own(target.value))
        target.fresh = None
    target.value.requires_grad_(wanted)
    return target


FINDERS.append(lambda func: requires_grad if func == torch.Tensor.requires_grad.__set__ else None)  # type: ignore[attr-defined]


def gradient_hook(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Refuse a hook that a forward registers on a parameter; one on what it computes is each model's own."""
    value = args[0].value if type(args[0]) is ModelTensor else args[0]
    if value.is_leaf and value.requires_grad:
        raise Refused(
            f"the forward registers a hook on the gradient of a parameter ({func.__name__}), whose parts are other "
            "tensors in each step: register it on the array's parameter after fuse, for the gradients of all models, "
            "[B, ...]"
        )
    raise NotFusable(func.__name__)


_HOOKS = (torch.Tensor.register_hook, torch.Tensor.register_post_accumulate_grad_hook)
FINDERS.append(lambda func: gradient_hook if func in _HOOKS else None)
