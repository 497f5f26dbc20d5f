# SPDX-License-Identifier: MIT
"""One model of an array trained alone by torch's own layers and optimizer: what a fused number is checked against."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from .. import ops
from ..nn.random_streams import stream_key, streams

Parameters = Sequence[torch.Tensor]


class MaskStream:
    """The dropout masks of one place in one model, drawn in the order of the steps."""

    def __init__(self, seed: int, place: int) -> None:
        self._rng = torch.tensor([[stream_key(seed, place), 0]])

    def drop(self, x: torch.Tensor, p: float) -> torch.Tensor:
        """`x` with this step's mask; then on to the next step."""
        if p == 0.0:
            return x
        y = ops.dropout(
            x.unsqueeze(0), torch.tensor([p], device=x.device), self._rng.to(x.device, copy=True)
        ).squeeze(0)
        self._rng[0, 1] += 1
        return y


class _StreamDropout(torch.nn.Module):
    """Stands for a `torch.nn.Dropout`, with the masks of `stream`."""

    def __init__(self, p: float, stream: MaskStream) -> None:
        super().__init__()
        self.p, self._stream = p, stream

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._stream.drop(x, self.p) if self.training else x


def share_masks(model: torch.nn.Module, array: torch.nn.Module, seed: int) -> None:
    """Makes plain `model` draw the dropout masks that `array` draws for the model with `seed`.

    `torch.nn.Dropout`s are exchanged; attention, which drops inside a function, is told its stream by a hook and must
    run within `masked_attention`.
    """
    for place, (name, _) in enumerate(streams(array)):
        stream = MaskStream(seed, place)
        path, _, leaf = name.rpartition(".")
        parent: Any = model.get_submodule(path)
        if isinstance(parent, torch.nn.MultiheadAttention):
            parent.register_forward_pre_hook(lambda *_, stream=stream: _attention_stream.append(stream))
        else:
            setattr(parent, leaf, _StreamDropout(getattr(parent, leaf).p, stream))


_attention_stream: list[MaskStream] = []


@contextlib.contextmanager
def masked_attention() -> Iterator[None]:
    """While active, attention in torch's layers drops by the stream of `share_masks`. For one thread, in a check."""
    functional: Any = torch.nn.functional
    original = functional.scaled_dot_product_attention

    def attention(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
    ) -> torch.Tensor:
        """The definition, written out: softmax(q kᵀ / √d + mask), dropped, times v."""
        scores = q @ k.transpose(-2, -1) * q.size(-1) ** -0.5
        if is_causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
            scores = scores.masked_fill(later, float("-inf"))
        if attn_mask is not None:
            scores = (
                scores.masked_fill(~attn_mask, float("-inf"))
                if attn_mask.dtype == torch.bool
                else scores + attn_mask
            )
        probabilities = scores.softmax(-1)
        stream = _attention_stream.pop()
        return (stream.drop(probabilities, dropout_p) if dropout_p else probabilities) @ v

    functional.scaled_dot_product_attention = attention
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = original
        _attention_stream.clear()


class Tolerance(NamedTuple):
    """How far a fused array may be from separate runs: rounding in another order, grown over a few steps.

    `loss` is relative to the separate loss; `update` is ‖w_fused - w_separate‖ / ‖w_separate - w_start‖ of a model.
    A mean over many samples hides what is wrong in a few of them; the update does not.
    """

    loss: float
    update: float


def update_error(fused: Parameters, separate: Parameters, start: Parameters) -> float:
    """‖w_fused - w_separate‖ / ‖w_separate - w_start‖ over all parameters of one model."""
    apart = sum(float((a - b).double().square().sum()) for a, b in zip(fused, separate, strict=True))
    moved = sum(float((b - c).double().square().sum()) for b, c in zip(separate, start, strict=True))
    return (apart / moved) ** 0.5 if moved else float("inf")


def compare(
    fused: list[list[float]], separate: list[list[float]], updates: list[float], tolerance: Tolerance
) -> dict[str, Any]:
    """The record of an equality check: losses [step][model] of both sides and each model's `update_error`."""
    losses = [
        abs(a - b) / max(abs(b), 1e-12)
        for row, other in zip(fused, separate, strict=True)
        for a, b in zip(row, other, strict=True)
    ]
    # A NaN compares false with everything, so nothing that is NaN passes.
    passed = (
        bool(losses)
        and all(e <= tolerance.loss for e in losses)
        and all(e <= tolerance.update for e in updates)
    )
    return {
        "passed": passed,
        "tolerance": tolerance.loss,
        "max_relative_error": max(losses, default=float("nan")),
        "update_tolerance": tolerance.update,
        "max_update_error": max(updates, default=float("nan")),
        "steps": len(fused),
        "models": len(fused[0]) if fused else 0,
        "losses_fused": fused,
        "losses_separate": separate,
    }
