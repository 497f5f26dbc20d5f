# SPDX-License-Identifier: MIT
"""Google's neural machine translation (Wu et al., 2016), as MLPerf trained it (v0.5)."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ..errors import InvalidArgument

PAD = 0


class GNMT(nn.Module):
    """Source tokens `[S, N]`, their lengths `[N]`, and target tokens `[T, N]` to logits of the next one `[T, N, V]`.

    Lengths descend and are on the CPU. One embedding serves both languages. The encoder is `layers` LSTMs, the first in
    both directions; the decoder has as many, all fed with the attention of the first; from the third on each adds its
    input to its output. Dropout is on the input of each but the first.
    """

    def __init__(self, vocab_size: int, hidden: int = 1024, layers: int = 4, dropout: float = 0.2) -> None:
        super().__init__()
        if layers < 2:
            raise InvalidArgument(f"layers must be 2 or more, got {layers}")
        self.embedding = nn.Embedding(vocab_size, hidden, padding_idx=PAD)
        self.encoder = nn.ModuleList(
            nn.LSTM(hidden * (2 if i == 1 else 1), hidden, bidirectional=i == 0) for i in range(layers)
        )
        self.first = nn.LSTM(hidden, hidden)
        self.attention = BahdanauAttention(hidden)
        self.decoder = nn.ModuleList(nn.LSTM(2 * hidden, hidden) for _ in range(layers - 1))
        self.classifier = nn.Linear(hidden, vocab_size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, source: torch.Tensor, lengths: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.decode(target, self.encode(source, lengths), lengths)

    def encode(self, source: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Encode source tokens `[S, N]` to `[S, N, H]`."""
        packed = pack_padded_sequence(self.embedding(source), lengths)
        x, _ = pad_packed_sequence(self.encoder[0](packed)[0])
        x = self.encoder[1](self.dropout(x))[0]
        for layer in self.encoder[2:]:
            x = layer(self.dropout(x))[0] + x
        return x

    def decode(self, target: torch.Tensor, context: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        x = self.first(self.embedding(target))[0]
        found = self.attention(x, context, lengths)
        for i, layer in enumerate(self.decoder):
            y = layer(torch.cat((self.dropout(x), found), 2))[0]
            x = y + x if i > 0 else y
        return self.classifier(x)


class BahdanauAttention(nn.Module):
    """Additive attention of queries `[T, N, H]` to keys `[S, N, H]`, of which `lengths` `[N]` count: `[T, N, H]`.

    The score is g v/|v| · tanh(Wq + Uk + b): additive (Bahdanau et al., 2015), its vector normalised.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, hidden, bias=False)
        bound = 1.0 / math.sqrt(hidden)
        self.vector = nn.Parameter(torch.empty(hidden).uniform_(-bound, bound))
        self.scale = nn.Parameter(torch.full((1,), bound))
        self.bias = nn.Parameter(torch.zeros(hidden))

    def forward(self, queries: torch.Tensor, keys: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        keys = keys.transpose(0, 1)  # [N, S, H]
        query = self.query(queries.transpose(0, 1)).unsqueeze(2)  # [N, T, 1, H]
        vector = self.vector / self.vector.norm() * self.scale
        scores = torch.tanh(query + self.key(keys).unsqueeze(1) + self.bias) @ vector  # [N, T, S]
        places = torch.arange(keys.size(1), device=keys.device)
        absent = places >= lengths.to(keys.device, non_blocking=True).unsqueeze(1)  # [N, S]
        scores = scores.float().masked_fill(absent.unsqueeze(1), float("-inf"))
        found = scores.softmax(2).to(keys.dtype) @ keys
        return found.transpose(0, 1)


def label_smoothing_loss(logits: torch.Tensor, target: torch.Tensor, smoothing: float = 0.1) -> torch.Tensor:
    """Compute the sum of (1 - s) · -log p(target) + s · mean of -log p over tokens other than padding: `[]`.

    `logits` `[T, V]`, `target` `[T]` (Szegedy et al., 2016; in the form of MLPerf's GNMT).
    """
    return nn.functional.cross_entropy(logits, target, ignore_index=PAD, reduction="sum", label_smoothing=smoothing)
