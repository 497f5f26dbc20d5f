# SPDX-License-Identifier: MIT
"""Operators and tensors below autograd: dispatch modes, tensors without storage, operators without a public name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .lookup import get, note_lost, one

__all__ = [
    "StorageWeakRef", "TorchDispatchMode", "assert_true", "dispatch_modes", "foreach_copy_", "foreach_mul_",
    "foreach_norm", "hidden_from_function_modes", "hidden_from_modes", "innermost_dispatch_mode",
    "innermost_function_mode", "mark_parameter",
    "sample_dirichlet", "standard_gamma", "standard_gamma_grad", "to_copy", "unsafe_view", "weight_norm",
    "wrapper_subclass",
]  # fmt: skip

dispatch_modes: Callable[[], int] = one("dispatch modes", lambda: 1)
"""The number of `TorchDispatchMode`s that look at the operators of this thread; 1 where that cannot be known."""

innermost_dispatch_mode: Callable[[], Any] = one("dispatch mode on top", lambda: None)
"""The `TorchDispatchMode` that sees an operator first; None if there is none, or it cannot be known."""

hidden_from_modes: Any = one("hidden from modes", contextlib.nullcontext)
"""Context manager: no `TorchDispatchMode` sees what runs inside."""

hidden_from_function_modes: Any = one("function modes", contextlib.nullcontext)
"""Context manager: no `TorchFunctionMode` sees what runs inside."""

innermost_function_mode: Callable[[], Any] = one("function mode on top", lambda: None)
"""The `TorchFunctionMode` that sees a call first; None if there is none, or it cannot be known."""


class _NoDispatchMode:
    """In place of `TorchDispatchMode`; never entered, for `no_capture` says why."""


TorchDispatchMode: Any = one("recorder", _NoDispatchMode)
StorageWeakRef: Any = one("storages", None)


def _meta_subclass(kind: Any, shape: Sequence[int], *, dtype: Any, device: Any) -> Any:
    """Return a tensor of class `kind` on the meta device; the class says itself which device it shows."""
    return torch.empty(tuple(shape), dtype=dtype, device="meta").as_subclass(kind)


wrapper_subclass: Callable[..., Any] = one("wrapper", _meta_subclass)
"""`wrapper_subclass(kind, shape, dtype=, device=)` makes a tensor of class `kind` without storage."""


weight_norm: Any = one("weight norm", None)
"""`weight_norm(v, g, dim)` gives rows of `v` the lengths `g`; None where there is none."""


def mark_parameter(tensor: Any) -> None:
    """Make `isinstance(tensor, torch.nn.Parameter)` true."""
    tensor._is_param = True


def _probe_parameter_mark() -> None:
    tensor = torch.empty(0, device="cpu")
    mark_parameter(tensor)
    if not isinstance(tensor, torch.nn.Parameter):
        note_lost("parameter mark")


_probe_parameter_mark()

_foreach = get("foreach")


def _norms(tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    return [torch.linalg.vector_norm(tensor) for tensor in tensors]


def _scale_(tensors: Sequence[torch.Tensor], factor: float) -> None:
    for tensor in tensors:
        tensor.mul_(factor)


def _copy_(tensors: Sequence[torch.Tensor], others: Sequence[torch.Tensor], non_blocking: bool = False) -> None:
    for tensor, other in zip(tensors, others, strict=True):
        tensor.copy_(other, non_blocking)


foreach_norm: Callable[..., Any] = _foreach[0] if _foreach else _norms
"""The 2-norm of each tensor in a list."""
foreach_mul_: Callable[..., Any] = _foreach[1] if _foreach else _scale_
"""Multiplies each tensor in a list by one number, in place."""
foreach_copy_: Callable[..., Any] = _foreach[2] if _foreach else _copy_
"""Copies each tensor of a second list into that of the first."""

assert_true: Any = one("assertion", None)
"""The operator `assert_true(truth, message)`, which fails unless `truth` is true; None where there is none."""

to_copy: Any = one("copy of another dtype", None)
"""The operator `to_copy(tensor, dtype=...)`, as torch's dispatcher has it; None where there is none."""

unsafe_view: Callable[..., Any] = one("unsafe view", torch.reshape)
"""`unsafe_view(x, shape)` of a fresh result that nothing else looks at."""

_gamma = get("gamma draws") or [None, None]
standard_gamma: Any = _gamma[0]
"""`standard_gamma(concentration)` draws from gamma distributions; None where there is none."""
standard_gamma_grad: Any = _gamma[1]
"""`standard_gamma_grad(concentration, drawn)`: derivative of what was drawn by its concentration."""
sample_dirichlet: Any = one("dirichlet draws", None)
"""`sample_dirichlet(concentration)` draws from Dirichlet distributions; None where there is none."""
