# SPDX-License-Identifier: MIT
"""Log-probabilities of a frozen head, whose logits are never stored whole.

The gradient of one row's log-probability by its hidden state, W[y] - softmax(h W^T) W, does not depend on other rows:
it is computed with the logits of a chunk, and the backward pass only scales it. A vocabulary of 150,000 words then
takes no memory in proportion to the number of tokens.
"""

from __future__ import annotations

from typing import Any

import torch

from ..ops import chunk_rows


def log_probs_of(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, wanted: torch.Tensor
) -> torch.Tensor:
    """Compute log softmax(hidden weight^T + bias) at the classes `wanted`.

    Args:
        hidden: `[R, D]`.
        weight: `[V, D]`, and `bias` `[V]`, which take no gradient.
        wanted: `[R]`, class indices.

    Returns:
        `[R]` in float32, or in float64 if the logits are.
    """
    found: torch.Tensor = _LogProbs.apply(hidden, weight, bias, wanted)
    return found


class _LogProbs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, bias: Any, wanted: torch.Tensor) -> torch.Tensor:
        wide = torch.promote_types(hidden.dtype, torch.float32)
        found = torch.empty(len(hidden), dtype=wide, device=hidden.device)
        fall = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        rows = chunk_rows(len(weight))
        for first in range(0, len(hidden), rows):
            part = slice(first, first + rows)
            logs = torch.nn.functional.linear(hidden[part], weight, bias).log_softmax(1, dtype=wide)
            at = wanted[part, None]
            found[part] = logs.gather(1, at).squeeze(1)
            if fall is not None:
                shares = logs.exp_().scatter_add_(1, at, logs.new_full(at.shape, -1))
                fall[part] = shares.to(weight.dtype) @ weight
        ctx.save_for_backward(fall)
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
        (fall,) = ctx.saved_tensors
        return (-dy[:, None] * fall).to(fall.dtype), None, None, None
