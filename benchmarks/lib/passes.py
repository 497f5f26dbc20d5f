# SPDX-License-Identifier: MIT
"""Forward and backward passes as variants of an operator's benchmark: of all models at once, or in a loop."""

from collections.abc import Callable, Sequence

from torch import Tensor


def at_once(call: Callable[[], Tensor], leaves: Sequence[Tensor], grad: Tensor) -> Callable[[], None]:
    """Make a function that clears the gradients of `leaves` and runs `call()` forward and backward."""

    def run() -> None:
        for leaf in leaves:
            leaf.grad = None
        call().backward(grad)

    return run


def in_a_loop(
    call: Callable[..., Tensor], models: Sequence[Sequence[Tensor]], grads: Sequence[Tensor]
) -> Callable[[], None]:
    """Make a function that runs `call(*leaves)` forward and backward for the leaves of each model in turn."""

    def run() -> None:
        for leaves, grad in zip(models, grads, strict=True):
            for leaf in leaves:
                leaf.grad = None
            call(*leaves).backward(grad)

    return run


def apart(leaves: Sequence[Tensor], B: int) -> list[list[Tensor]]:
    """View each model's part of the `leaves` `[B, ...]` as leaves of its own."""
    return [[leaf.detach()[index].requires_grad_() for leaf in leaves] for index in range(B)]
