# SPDX-License-Identifier: MIT
"""Layers for an array of B models: torch's names, arguments, order and defaults, and a keyword-only `B`.

`B=0`, the default, gives torch's own layer. Dimension 0 is the model: parameters `[B, ...]`, activations `[B, N, ...]`.
"""

from . import functional as functional
from ._activation import GLU as GLU
from ._activation import LogSoftmax as LogSoftmax
from ._activation import PReLU as PReLU
from ._activation import RReLU as RReLU
from ._activation import Softmax as Softmax
from ._activation import Softmax2d as Softmax2d
from ._activation import Softmin as Softmin
from ._array import array as array
from ._attention import MultiheadAttention as MultiheadAttention
from ._base import ArrayModule as ArrayModule
from ._batch_norm import BatchNorm1d as BatchNorm1d
from ._batch_norm import BatchNorm2d as BatchNorm2d
from ._batch_norm import BatchNorm3d as BatchNorm3d
from ._batch_norm import InstanceNorm1d as InstanceNorm1d
from ._batch_norm import InstanceNorm2d as InstanceNorm2d
from ._batch_norm import InstanceNorm3d as InstanceNorm3d
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
from ._normalization import GroupNorm as GroupNorm
from ._normalization import LayerNorm as LayerNorm
from ._normalization import LocalResponseNorm as LocalResponseNorm
from ._normalization import RMSNorm as RMSNorm
from ._sparse import Embedding as Embedding
from ._transformer import TransformerEncoderLayer as TransformerEncoderLayer

__all__ = [
    "GLU",
    "ArrayModule",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "CTCLoss",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "GaussianNLLLoss",
    "GroupNorm",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "KLDivLoss",
    "L1Loss",
    "LayerNorm",
    "Linear",
    "LocalResponseNorm",
    "LogSoftmax",
    "MSELoss",
    "MarginRankingLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "MultiheadAttention",
    "NLLLoss",
    "NLLLoss2d",
    "PReLU",
    "PoissonNLLLoss",
    "RMSNorm",
    "RReLU",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "TransformerEncoderLayer",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
    "array",
    "functional",
    "seed",
]
