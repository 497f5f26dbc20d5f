# SPDX-License-Identifier: MIT
"""A language model of GRU layers: the word-level example of PyTorch, which the suite of 2019 trained."""

from __future__ import annotations

import torch
from torch import nn


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
