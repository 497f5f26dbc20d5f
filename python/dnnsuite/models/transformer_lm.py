# SPDX-License-Identifier: MIT
"""A causal transformer language model (Vaswani et al., NeurIPS 2017), in the size of HFTA's benchmark."""

from __future__ import annotations

import math

import torch
from torch import nn

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
