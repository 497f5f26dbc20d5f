# SPDX-License-Identifier: MIT
"""AdamW for an array of models."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch

from ._adam import Adam


class AdamW(Adam):
    """`torch.optim.AdamW` for B models (Loshchilov and Hutter, 2019): `Adam` after w ← (1 - lr · weight_decay) w."""

    torch_class: ClassVar[Callable[..., torch.optim.Optimizer]] = torch.optim.AdamW
    decoupled = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: Any = 1e-8,
        weight_decay: Any = 1e-2,
        amsgrad: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad)
