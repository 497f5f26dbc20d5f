# SPDX-License-Identifier: MIT
"""Layers for an array of B models: torch's names, arguments, order and defaults, and a keyword-only `B`.

`B=0`, the default, gives torch's own layer. Dimension 0 is the model: parameters `[B, ...]`, activations `[B, N, ...]`.
"""

from . import functional as functional
from ._array import array as array
from ._attention import MultiheadAttention as MultiheadAttention
from ._base import ArrayModule as ArrayModule
from ._dropout import Dropout as Dropout
from ._dropout import seed as seed
from ._linear import Linear as Linear
from ._loss import CrossEntropyLoss as CrossEntropyLoss
from ._normalization import LayerNorm as LayerNorm
from ._sparse import Embedding as Embedding
from ._transformer import TransformerEncoderLayer as TransformerEncoderLayer

__all__ = [
    "ArrayModule",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "LayerNorm",
    "Linear",
    "MultiheadAttention",
    "TransformerEncoderLayer",
    "array",
    "functional",
    "seed",
]
