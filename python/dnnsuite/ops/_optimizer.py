# SPDX-License-Identifier: MIT
"""Optimizer steps over lists of stacked tensors: every parameter and state is read and written once.

Tensors are [B, ...], each model's part contiguous, with any stride between models; hyper-parameters are float64 [B]
on the same device. Formulas are those of torch.optim.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ._library import library

__all__ = ["adadelta_", "adam_", "sgd_"]

_adadelta = library.adadelta_.default
_adam = library.adam_.default
_sgd = library.sgd_.default


def _nothing(*args: object) -> None:
    """Writes in place and returns nothing: all that torch.compile has to know."""


for _name in ("adadelta_", "adam_", "sgd_"):
    torch.library.register_fake(f"dnnsuite::{_name}", _nothing)


def adadelta_(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    square_avgs: Sequence[Tensor],
    acc_deltas: Sequence[Tensor],
    lr: Tensor,
    rho: Tensor,
    eps: Tensor,
    weight_decay: Tensor,
) -> None:
    """One step of torch.optim.Adadelta for every model."""
    _adadelta(params, grads, square_avgs, acc_deltas, lr, rho, eps, weight_decay)


def adam_(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    exp_avgs: Sequence[Tensor],
    exp_avg_sqs: Sequence[Tensor],
    max_exp_avg_sqs: Sequence[Tensor],
    step: Tensor,
    lr: Tensor,
    beta1: Tensor,
    beta2: Tensor,
    eps: Tensor,
    weight_decay: Tensor,
    decoupled: bool,
) -> None:
    """One step of torch.optim.Adam, or of AdamW if `decoupled`.

    `step` counts from 1 and is already that of this step; `max_exp_avg_sqs` is empty unless AMSGrad is wanted.
    """
    _adam(
        params,
        grads,
        exp_avgs,
        exp_avg_sqs,
        max_exp_avg_sqs,
        step,
        lr,
        beta1,
        beta2,
        eps,
        weight_decay,
        decoupled,
    )


def sgd_(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    momentum_buffers: Sequence[Tensor],
    lr: Tensor,
    momentum: Tensor,
    dampening: Tensor,
    weight_decay: Tensor,
    nesterov: bool,
    first: bool,
) -> None:
    """One step of torch.optim.SGD; `momentum_buffers` is empty without momentum.

    In the `first` step the buffers' contents are not read: they become the gradients.
    """
    _sgd(params, grads, momentum_buffers, lr, momentum, dampening, weight_decay, nesterov, first)
