# SPDX-License-Identifier: MIT
"""BERT with a masked-language-model head (Devlin et al., NAACL 2019), in the size of HFTA's benchmark."""

from __future__ import annotations

from typing import Any

import torch


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
