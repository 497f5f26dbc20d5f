# SPDX-License-Identifier: MIT
"""One model of an array trained alone by torch's layers and optimizer, to check fused numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .. import ops
from ..errors import InvalidArgument
from ..nn.random_draws import fill
from ..nn.random_streams import FUNCTION_STREAM, stream_key, streams


class MaskStream:
    """Random numbers of one place in one model, in the order of the steps."""

    def __init__(self, seed: int, place: int) -> None:
        self._rng = torch.tensor([[stream_key(seed, place), 0]])

    def drop(self, x: torch.Tensor, p: float) -> torch.Tensor:
        """Apply this step's mask to `x`, and go on to the next step."""
        if p == 0.0:
            return x
        wide = x if x.dtype == torch.float64 else x.float()  # the kernels of a CPU know no others
        rate = torch.tensor([p], device=x.device)
        return ops.dropout(wide.unsqueeze(0), rate, self._next(x.device)).squeeze(0).to(x.dtype)

    def fill(self, method: str, like: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return numbers in the form of `like`, drawn in `dtype` if that is the coarser one, by `Tensor.method`."""
        own = like.detach().to(dtype) if like.dtype == torch.float64 else like.detach()
        return fill(method, own.unsqueeze(0), self._next(like.device)).squeeze(0).to(like.dtype)

    def _next(self, device: torch.device) -> torch.Tensor:
        now = self._rng.to(device, copy=True)
        self._rng[0, 1] += 1
        return now

    @property
    def position(self) -> int:
        """Number of draws; setting it back makes them again."""
        return int(self._rng[0, 1])

    @position.setter
    def position(self, drawn: int) -> None:
        self._rng[0, 1] = drawn


class _StreamDropout(torch.nn.Module):
    """Stand-in for a `torch.nn.Dropout`, with the masks of `stream`."""

    def __init__(self, p: float, stream: MaskStream) -> None:
        super().__init__()
        self.p, self._stream = p, stream

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._stream.drop(x, self.p) if self.training else x


class _Drawing(TorchFunctionMode):
    """`torch.rand_like` and `torch.randn_like` take their numbers from a stream."""

    def __init__(self, stream: MaskStream, dtype: torch.dtype) -> None:
        super().__init__()
        self._stream, self._dtype = stream, dtype

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        method = {"rand_like": "uniform_", "randn_like": "normal_"}.get(getattr(func, "__name__", ""))
        if method is None or kwargs:
            return func(*args, **(kwargs or {}))
        return self._stream.fill(method, args[0], self._dtype)


def _draw_from(module: torch.nn.Module, stream: MaskStream, dtype: torch.dtype) -> None:
    """Let the functions that `module` calls in its forward draw from `stream`."""
    forward = module.forward

    def drawing(*args: Any, **kwargs: Any) -> Any:
        with _Drawing(stream, dtype):
            return forward(*args, **kwargs)

    module.forward = drawing


class _StreamAttention(torch.nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention` written out, with the dropout masks of `masks`; torch's own where nothing drops."""

    masks: MaskStream

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        key_padding_mask: torch.Tensor | None = None,
        need_weights: bool = True,
        attn_mask: torch.Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if not self.training or not self.dropout:
            return super().forward(
                query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
            )
        if need_weights or self.in_proj_weight is None or self.bias_k is not None or self.add_zero_attn:
            raise InvalidArgument(
                "attention with given masks has packed projections, no bias of keys and values, and gives no weights"
            )
        inputs = (query, key, value) if self.batch_first else (x.transpose(0, 1) for x in (query, key, value))
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        q, k, v = (
            torch.nn.functional.linear(x, weight, bias).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for x, weight, bias in zip(inputs, self.in_proj_weight.chunk(3), biases, strict=True)
        )  # [N, H, L or S, D]
        scores = q @ k.transpose(-2, -1) * q.size(-1) ** -0.5
        if attn_mask is not None:  # [L, S] or [N * H, L, S]; with it `is_causal` is but a hint
            scores = _masked(scores, attn_mask if attn_mask.dim() == 2 else attn_mask.view_as(scores))
        if key_padding_mask is not None:  # [N, S]
            scores = _masked(scores, key_padding_mask[:, None, None])
        output = self.out_proj((self.masks.drop(scores.softmax(-1), self.dropout) @ v).transpose(1, 2).flatten(2))
        return output if self.batch_first else output.transpose(0, 1), None


class _StreamRecurrent(torch.nn.RNNBase):
    """`torch.nn.RNN`, `LSTM` or `GRU` layer by layer, with the dropout masks of `masks` between them."""

    masks: MaskStream

    def forward(self, x: torch.Tensor, hx: Any = None) -> tuple[torch.Tensor, Any]:
        if not isinstance(x, torch.Tensor) or x.dim() != 3:
            raise InvalidArgument("a recurrent network with given masks takes sequences [T, N, I] or [N, T, I]")
        x = x.transpose(0, 1) if self.batch_first else x
        directions, lstm = 1 + self.bidirectional, self.mode == "LSTM"
        weights: Any = [weight for own in self.all_weights for weight in own]
        each = len(weights) // self.num_layers
        ends = []
        for layer in range(self.num_layers):
            if layer and self.training:
                x = self.masks.drop(x, self.dropout)
            mine = slice(layer * directions, (layer + 1) * directions)
            sizes = (self.proj_size or self.hidden_size, self.hidden_size)[: 1 + lstm]
            parts = (hx if lstm else (hx,)) if hx is not None else [
                x.new_zeros(self.num_layers * directions, x.size(1), size) for size in sizes
            ]  # fmt: skip
            start = [part[mine] for part in parts]
            x, *end = _RECURRENT[self.mode](
                x, tuple(start) if lstm else start[0], weights[layer * each : (layer + 1) * each],
                self.bias, 1, 0.0, self.training, self.bidirectional, False,
            )  # fmt: skip
            ends.append(end)
        last = [torch.cat(part) for part in zip(*ends, strict=True)]
        return x.transpose(0, 1) if self.batch_first else x, tuple(last) if lstm else last[0]


_RECURRENT: dict[str, Any] = {
    "RNN_TANH": torch.rnn_tanh, "RNN_RELU": torch.rnn_relu, "GRU": torch.gru, "LSTM": torch.lstm,
}  # fmt: skip


def _masked(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Apply a mask that is True where a key is ignored, or a mask of numbers to add."""
    return scores.masked_fill(mask, float("-inf")) if mask.dtype == torch.bool else scores + mask


def share_masks(model: torch.nn.Module, array: torch.nn.Module, seed: int) -> list[MaskStream]:
    """Make plain `model` draw the random numbers that `array` draws for the model with `seed`.

    Its `torch.nn.Dropout`s are exchanged; its attention and recurrent networks, which drop inside functions of torch,
    are written out; `rand_like` and `randn_like` of its forward draw from the model's stream of functions. Returns the
    streams that it draws from now.
    """
    masks = []
    for place, (name, _) in enumerate(streams(array)):
        masks.append(stream := MaskStream(seed, place))
        path, _, leaf = name.rpartition(".")
        parent: Any = model.get_submodule(path)
        if isinstance(parent, torch.nn.MultiheadAttention):
            attention: Any = parent
            attention.__class__, attention.masks = _StreamAttention, stream
        elif isinstance(parent, torch.nn.RNNBase):
            if parent.dropout:
                recurrent: Any = parent
                recurrent.__class__, recurrent.masks = _StreamRecurrent, stream
        else:
            setattr(parent, leaf, _StreamDropout(getattr(parent, leaf).p, stream))
    dtype = next((p.dtype for p in array.parameters() if p.is_floating_point()), torch.float32)
    for name, module in array.named_modules():
        if module._buffers.get(FUNCTION_STREAM) is not None:
            masks.append(stream := MaskStream(seed, len(masks)))
            _draw_from(model.get_submodule(name), stream, dtype)
    return masks
