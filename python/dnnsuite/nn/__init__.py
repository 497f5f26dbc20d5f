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
from ._loss import BCELoss as BCELoss
from ._loss import BCEWithLogitsLoss as BCEWithLogitsLoss
from ._loss import CosineEmbeddingLoss as CosineEmbeddingLoss
from ._loss import CrossEntropyLoss as CrossEntropyLoss
from ._loss import CTCLoss as CTCLoss
from ._loss import GaussianNLLLoss as GaussianNLLLoss
from ._loss import HingeEmbeddingLoss as HingeEmbeddingLoss
from ._loss import HuberLoss as HuberLoss
from ._loss import KLDivLoss as KLDivLoss
from ._loss import L1Loss as L1Loss
from ._loss import MarginRankingLoss as MarginRankingLoss
from ._loss import MSELoss as MSELoss
from ._loss import MultiLabelMarginLoss as MultiLabelMarginLoss
from ._loss import MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss
from ._loss import MultiMarginLoss as MultiMarginLoss
from ._loss import NLLLoss as NLLLoss
from ._loss import NLLLoss2d as NLLLoss2d
from ._loss import PoissonNLLLoss as PoissonNLLLoss
from ._loss import SmoothL1Loss as SmoothL1Loss
from ._loss import SoftMarginLoss as SoftMarginLoss
from ._loss import TripletMarginLoss as TripletMarginLoss
from ._loss import TripletMarginWithDistanceLoss as TripletMarginWithDistanceLoss
from ._normalization import LayerNorm as LayerNorm
from ._sparse import Embedding as Embedding
from ._transformer import TransformerEncoderLayer as TransformerEncoderLayer

__all__ = [
    "ArrayModule",
    "BCELoss",
    "BCEWithLogitsLoss",
    "CTCLoss",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "GaussianNLLLoss",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "LayerNorm",
    "Linear",
    "MSELoss",
    "MarginRankingLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "MultiheadAttention",
    "NLLLoss",
    "NLLLoss2d",
    "PoissonNLLLoss",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "TransformerEncoderLayer",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
    "array",
    "functional",
    "seed",
]
