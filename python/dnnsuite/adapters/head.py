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
        slope = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        rows = chunk_rows(len(weight))
        for first in range(0, len(hidden), rows):
            part = slice(first, first + rows)
            logits = torch.nn.functional.linear(hidden[part], weight, bias).to(wide)
            at = wanted[part, None]
            total = logits.logsumexp(1, keepdim=True)
            found[part] = (logits.gather(1, at) - total).squeeze(1)
            if slope is not None:
                falls = logits.sub_(total).exp_().neg_()
                falls.scatter_add_(1, at, torch.ones_like(at, dtype=wide))
                slope[part] = falls.to(weight.dtype) @ weight
        ctx.save_for_backward(slope)
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
        (slope,) = ctx.saved_tensors
        return (dy[:, None] * slope).to(slope.dtype), None, None, None
