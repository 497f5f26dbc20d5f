# SPDX-License-Identifier: MIT
"""Transformers: a causal language model (Vaswani et al., NeurIPS 2017) and BERT with a masked-language-model head
(Devlin et al., NAACL 2019), both in the size of HFTA's benchmark; a Conformer (Gulati et al., 2020); a diffusion
transformer (Peebles and Xie, 2023), whose norms are scaled, shifted and gated by time and class; and a vision
transformer (Dosovitskiy et al., 2021), a running average of weights, and both as student and teacher."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ..errors import InvalidArgument


class PositionalEncoding(nn.Module):
    """Sines and cosines of the position, added to `[N, L, E]`; then dropout."""

    table: torch.Tensor  # [max_len, E]

    def __init__(self, width: int, dropout: float, max_len: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        position = torch.arange(max_len).unsqueeze(1)
        rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        table = torch.zeros(max_len, width)
        table[:, 0::2] = torch.sin(position * rate)
        table[:, 1::2] = torch.cos(position * rate[: width // 2])
        self.register_buffer("table", table)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(x + self.table[: x.size(1)])


class TransformerLanguageModel(nn.Module):
    """Tokens `[N, L]` to logits of the next token `[N, L, V]`; a position sees itself and what is before it.

    `tied` makes the output layer's weight that of the embedding (Press and Wolf, EACL 2017).
    """

    def __init__(
        self,
        vocab_size: int,
        width: int = 200,
        heads: int = 2,
        layers: int = 2,
        hidden: int = 200,
        dropout: float = 0.2,
        tied: bool = False,
        max_len: int = 512,
    ) -> None:
        super().__init__()
        if width % heads:
            raise InvalidArgument(f"width={width} must be divisible by heads={heads}")
        self.width = width
        self.embedding = nn.Embedding(vocab_size, width)
        self.position = PositionalEncoding(width, dropout, max_len)
        layer = nn.TransformerEncoderLayer(width, heads, hidden, dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocab_size)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        nn.init.uniform_(self.head.weight, -0.1, 0.1)
        nn.init.zeros_(self.head.bias)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.position(self.embedding(tokens) * math.sqrt(self.width))
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.size(1), device=tokens.device, dtype=x.dtype)
        return self.head(self.encoder(x, mask=mask, is_causal=True))


class BERT(torch.nn.Module):
    """Encoder over `[*, N, L]` token indices that scores the masked positions only.

    `nn` is the namespace of its layers: `torch.nn`, `dnnsuite.nn.array(0)` or, for B models at once,
    `dnnsuite.nn.array(B)`; `*` is then empty or `B`. Token and position embeddings, `nlayers` encoder layers of width
    `emsize` (norm after the residual and GELU, as in the paper), and one linear layer to the vocabulary. `segments`
    adds an embedding of segments, of which every token is in the first; without `embedding_norm` the embeddings are not
    normalised.
    """

    #: The forward pass works for any leading dimensions, so `dnnsuite.fuse` may run it on `[B, ...]` as it stands.
    array_forward = True

    def __init__(
        self,
        nn: Any,
        vocab_size: int,
        emsize: int = 128,
        nhid: int = 512,
        nlayers: int = 8,
        nhead: int = 8,
        dropout: Any = 0.1,
        max_len: int = 32,
        segments: int = 0,
        embedding_norm: bool = True,
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(vocab_size, emsize)
        self.position = nn.Embedding(max_len, emsize)
        self.segment = nn.Embedding(segments, emsize) if segments else None
        self.norm = nn.LayerNorm(emsize) if embedding_norm else None
        self.dropout = nn.Dropout(dropout)
        self.layers = torch.nn.ModuleList(
            nn.TransformerEncoderLayer(emsize, nhead, nhid, dropout, "gelu", batch_first=True) for _ in range(nlayers)
        )
        self.head = nn.Linear(emsize, vocab_size)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Logits `[*, N * P, V]` for `positions` `[*, N, P]` in the sequences `tokens` `[*, N, L]`."""
        places = torch.arange(tokens.size(-1), device=tokens.device).expand_as(tokens)
        x = self.token(tokens) + self.position(places)  # [*, N, L, E]
        if self.segment is not None:
            x = x + self.segment(torch.zeros_like(tokens))
        x = self.dropout(x if self.norm is None else self.norm(x))
        for layer in self.layers:
            x = layer(x)
        chosen = positions.unsqueeze(-1).expand(*positions.shape, x.size(-1))
        return self.head(x.gather(-2, chosen).flatten(-3, -2))


class _Convolution(nn.Module):
    """Gated depthwise convolution in time, with a norm."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        self.mix = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.norm = nn.GroupNorm(1, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = F.glu(self.enter(x.transpose(1, 2)), 1)
        return self.leave(F.silu(self.norm(self.mix(found)))).transpose(1, 2)


class _ConformerBlock(nn.Module):
    """Half-weighted feed-forward, attention, convolution, half-weighted feed-forward."""

    def __init__(self, width: int, heads: int, kernel: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.first, self.last = (
            nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width)) for _ in range(2)
        )
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.convolution = _Convolution(width, kernel)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + 0.5 * self.first(self.norms[0](x))
        h = self.norms[1](x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        x = x + self.convolution(self.norms[2](x))
        return self.norms[4](x + 0.5 * self.last(self.norms[3](x)))


class Conformer(nn.Module):
    """Map mel spectrograms `[N, T, mel]` to logits of the symbols `[N, T / 4, symbols]`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__()
        width, mel = options["width"], options["mel"]
        self.enter = nn.Sequential(
            nn.Conv1d(mel, width, 3, 2, 1), nn.SiLU(), nn.Conv1d(width, width, 3, 2, 1), nn.SiLU()
        )
        self.place = nn.Parameter(torch.randn(options["frames"] // 4, width) * 0.02)
        self.blocks = nn.ModuleList(
            _ConformerBlock(width, options["heads"], options["kernel"]) for _ in range(options["layers"])
        )
        self.leave = nn.Linear(width, options["symbols"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.enter(x.transpose(1, 2)).transpose(1, 2) + self.place
        for block in self.blocks:
            h = block(h)
        return self.leave(h)


_FREQUENCIES = 32


class _Conditioned(nn.Module):
    """Attention and a feed-forward whose norms are scaled, shifted and gated by the condition."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))
        self.modulation = nn.Linear(width, 6 * width)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        scale, shift, gate, ff_scale, ff_shift, ff_gate = self.modulation(condition).chunk(6, -1)
        h = self.norm(x) * (1 + scale) + shift
        x = x + gate * self.attention(h, h, h, need_weights=False)[0]
        return x + ff_gate * self.ff(self.norm(x) * (1 + ff_scale) + ff_shift)


class DiffusionTransformer(nn.Module):
    """Map noisy images `[N, C, S, S]`, times `[N]` and classes `[N]` to velocities `[N, C, S, S]`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__()
        width, patch, channels = options["width"], options["patch"], options["channels"]
        self.patch, self.size = patch, options["size"]
        self.enter = nn.Conv2d(channels, width, patch, patch)
        self.place = nn.Parameter(torch.randn((self.size // patch) ** 2, width) * 0.02)
        self.time = nn.Sequential(nn.Linear(2 * _FREQUENCIES, width), nn.SiLU(), nn.Linear(width, width))
        self.kind = nn.Embedding(options["classes"], width)
        self.layers = nn.ModuleList(_Conditioned(width, options["heads"]) for _ in range(options["layers"]))
        self.norm, self.last = nn.LayerNorm(width, elementwise_affine=False), nn.Linear(width, 2 * width)
        self.leave = nn.Linear(width, patch * patch * channels)
        for layer in (self.last, self.leave):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        rates = torch.exp(-math.log(1e4) * torch.arange(_FREQUENCIES) / _FREQUENCIES)
        self.rates: torch.Tensor
        self.register_buffer("rates", 1000 * rates)

    def forward(self, x: torch.Tensor, t: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        angles = t[:, None] * self.rates
        condition = F.silu(self.time(torch.cat([angles.cos(), angles.sin()], -1)) + self.kind(kind))[:, None]
        h = self.enter(x).flatten(2).transpose(1, 2) + self.place
        for layer in self.layers:
            h = layer(h, condition)
        scale, shift = self.last(condition).chunk(2, -1)
        patches = self.leave(self.norm(h) * (1 + scale) + shift).transpose(1, 2)
        return F.fold(patches, self.size, self.patch, stride=self.patch)


class Encoder(nn.Module):
    """Pictures `[N, C, S, S]` → features `[N, width]`, those of the class token (Dosovitskiy et al., 2021).

    Pictures of another size than `options["size"]` have places between those of its patches.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__()
        width, patch = options["width"], options["patch"]
        self.enter = nn.Conv2d(options["channels"], width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.side = options["size"] // patch
        self.place = nn.Parameter(torch.randn(1 + self.side**2, width) * 0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, options["heads"], 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
            )
            for _ in range(options["layers"])
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.every(x)[:, 0])

    def every(self, x: torch.Tensor) -> torch.Tensor:
        """Features of the class token and the patches, `[N, 1 + P, width]`."""
        patches = self.enter(x)
        place: torch.Tensor = self.place
        side = patches.shape[-1]
        if side != self.side:
            grid = place[1:].t().unflatten(1, (self.side, self.side))[None]
            between = F.interpolate(grid, size=(side, side), mode="bilinear", align_corners=False)
            place = torch.cat([place[:1], between[0].flatten(1).t()])
        h = torch.cat([self.token.expand(len(x), -1, -1), patches.flatten(2).transpose(1, 2)], 1) + place
        for layer in self.layers:
            h = layer(h)
        return h


class Averaged(nn.Module):
    """A model and the running average of its weights, which answers where the model is not being trained."""

    def __init__(self, live: nn.Module, decay: float) -> None:
        super().__init__()
        self.live, self.decay = live, decay
        self.average = copy.deepcopy(live).requires_grad_(False)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.live(*inputs) if self.training else self.average(*inputs)


class Student(nn.Module):
    """Pictures `[N, C, S, S]` → features `[N, width]`, and the similarity of each to the prototypes `[N, K]`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__()
        width, hidden, neck = options["width"], options["hidden"], options["bottleneck"]
        self.encoder = Encoder(options)
        layers = [nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.GELU()]
        for _ in range(options["deep"]):
            layers += [nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.GELU()]
        self.head = nn.Sequential(*layers, nn.Linear(hidden, neck), nn.BatchNorm1d(neck, affine=False))
        self.prototypes = nn.Parameter(torch.randn(options["prototypes"], neck) * neck**-0.5)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return self.encoder.norm(self.encoder.every(x)).mean(1)

    def similar(self, features: torch.Tensor) -> torch.Tensor:
        return F.linear(F.normalize(self.head(features), dim=-1), F.normalize(self.prototypes, dim=-1))


def spread(similar: torch.Tensor, temperature: float) -> torch.Tensor:
    """Answers `[N, K]` of which each prototype has as many: three rounds of Sinkhorn and Knopp."""
    found = ((similar - similar.max()) / temperature).exp()
    for _ in range(3):
        found = found / found.sum(0, keepdim=True)
        found = found / found.sum(1, keepdim=True)
    return found


class Dino(Averaged):
    """Crops → the student's similarities to the prototypes and the teacher's, in training; else the teacher's features
    of crops and its similarities. The teacher is the average."""

    def forward(self, large: Any, small: torch.Tensor | None = None) -> Any:  # type: ignore[override]
        student: Any = self.live
        teacher: Any = self.average
        if small is None:
            features = teacher.features(large)
            return features, teacher.similar(features)
        with torch.no_grad():
            said = teacher.similar(teacher.features(large))
        features = torch.cat([student.features(x) for x in (large, small)])
        return student.similar(features), said
