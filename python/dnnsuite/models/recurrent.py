# SPDX-License-Identifier: MIT
"""Recurrent layers: language models of GRU layers (the word-level example of PyTorch, which the suite of 2019 trained)
and of LSTM layers (Zaremba, Sutskever and Vinyals, 2014), two LSTM cells that predict the next value of a sequence
(PyTorch's time_sequence_prediction), and Google's neural machine translation (Wu et al., 2016) as MLPerf trained it
(v0.5)."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ..errors import InvalidArgument


class GRULanguageModel(nn.Module):
    """Tokens `[L, N]` and the state `[layers, N, H]` to logits of the next token `[L, N, V]` and the state after it.

    Dropout is before, between and after the layers. Embedding and output weights are uniform in ±0.1.
    """

    def __init__(
        self, vocab_size: int, width: int = 656, hidden: int = 656, layers: int = 2, dropout: float = 0.5
    ) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.embedding = nn.Embedding(vocab_size, width)
        self.gru = nn.GRU(width, hidden, layers, dropout=dropout if layers > 1 else 0.0)
        self.head = nn.Linear(hidden, vocab_size)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        nn.init.zeros_(self.head.bias)
        nn.init.uniform_(self.head.weight, -0.1, 0.1)

    def forward(self, tokens: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, state = self.gru(self.dropout(self.embedding(tokens)), state)
        return self.head(self.dropout(x)), state

    def first_state(self, batch_size: int) -> torch.Tensor:
        """Return the state before the first token: zeros `[layers, N, H]`."""
        weight = self.head.weight
        return weight.new_zeros(self.gru.num_layers, batch_size, self.gru.hidden_size)


State = tuple[torch.Tensor, torch.Tensor]


class LSTMLanguageModel(nn.Module):
    """Tokens `[N, L]` to logits of the next token `[N, L, V]` and the state after the last, two of `[layers, N, H]`.

    Dropout is on inputs and outputs of the layers, not on the state. `tied` makes the output layer's weight
    that of the embedding and needs `hidden` = `width` (Press and Wolf, EACL 2017).
    """

    def __init__(
        self,
        vocab_size: int,
        width: int = 200,
        hidden: int = 200,
        layers: int = 2,
        dropout: float = 0.2,
        tied: bool = False,
    ) -> None:
        super().__init__()
        if tied and hidden != width:
            raise InvalidArgument(f"tied weights need hidden = width; got hidden={hidden} and width={width}")
        self.dropout = nn.Dropout(dropout)
        self.embedding = nn.Embedding(vocab_size, width)
        between = dropout if layers > 1 else 0.0
        self.lstm = nn.LSTM(width, hidden, layers, dropout=between, batch_first=True)
        self.head = nn.Linear(hidden, vocab_size)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        nn.init.uniform_(self.head.weight, -0.1, 0.1)
        nn.init.zeros_(self.head.bias)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor, state: State | None = None) -> tuple[torch.Tensor, State]:
        x, state = self.lstm(self.dropout(self.embedding(tokens)), state)
        return self.head(self.dropout(x)), state


class SineLSTM(nn.Module):
    """Sequences `[N, T]` to the value that follows each of their values, `[N, T]`. 32 284 parameters at width 51."""

    def __init__(self, width: int = 51) -> None:
        super().__init__()
        self.first = nn.LSTMCell(1, width)
        self.second = nn.LSTMCell(width, width)
        self.linear = nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        zero = x.new_zeros(len(x), self.linear.in_features)
        state, second = (zero, zero), (zero, zero)
        values = []
        for value in x.split(1, dim=1):
            state = self.first(value, state)
            second = self.second(state[0], second)
            values.append(self.linear(second[0]))
        return torch.cat(values, dim=1)


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
