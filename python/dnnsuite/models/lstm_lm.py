# SPDX-License-Identifier: MIT
"""A language model of LSTM layers (Zaremba, Sutskever and Vinyals, 2014)."""

from __future__ import annotations

import torch
from torch import nn

from ..errors import InvalidArgument

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
