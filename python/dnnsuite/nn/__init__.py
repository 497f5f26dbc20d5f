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
from ._array import ArrayNamespace
from ._attention import MultiheadAttention as MultiheadAttention
from ._batch_norm import BatchNorm1d as BatchNorm1d
from ._batch_norm import BatchNorm2d as BatchNorm2d
from ._batch_norm import BatchNorm3d as BatchNorm3d
from ._batch_norm import InstanceNorm1d as InstanceNorm1d
from ._batch_norm import InstanceNorm2d as InstanceNorm2d
from ._batch_norm import InstanceNorm3d as InstanceNorm3d
from ._bilinear import Bilinear as Bilinear
from ._checkpoint import checkpoint as checkpoint
from ._compute import compute_dtype as compute_dtype
from ._conv import Conv1d as Conv1d
from ._conv import Conv2d as Conv2d
from ._conv import Conv3d as Conv3d
from ._conv import ConvTranspose1d as ConvTranspose1d
from ._conv import ConvTranspose2d as ConvTranspose2d
from ._conv import ConvTranspose3d as ConvTranspose3d
from ._distance import CosineSimilarity as CosineSimilarity
from ._distance import PairwiseDistance as PairwiseDistance
from ._dropout import AlphaDropout as AlphaDropout
from ._dropout import Dropout as Dropout
from ._dropout import Dropout1d as Dropout1d
from ._dropout import Dropout2d as Dropout2d
from ._dropout import Dropout3d as Dropout3d
from ._dropout import FeatureAlphaDropout as FeatureAlphaDropout
from ._linear import Linear as Linear
from ._linear_cross_entropy import LinearCrossEntropyLoss as LinearCrossEntropyLoss
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
from ._padding import CircularPad1d as CircularPad1d
from ._padding import CircularPad2d as CircularPad2d
from ._padding import CircularPad3d as CircularPad3d
from ._padding import ConstantPad1d as ConstantPad1d
from ._padding import ConstantPad2d as ConstantPad2d
from ._padding import ConstantPad3d as ConstantPad3d
from ._padding import ReflectionPad1d as ReflectionPad1d
from ._padding import ReflectionPad2d as ReflectionPad2d
from ._padding import ReflectionPad3d as ReflectionPad3d
from ._padding import ReplicationPad1d as ReplicationPad1d
from ._padding import ReplicationPad2d as ReplicationPad2d
from ._padding import ReplicationPad3d as ReplicationPad3d
from ._padding import ZeroPad1d as ZeroPad1d
from ._padding import ZeroPad2d as ZeroPad2d
from ._padding import ZeroPad3d as ZeroPad3d
from ._pooling import AdaptiveAvgPool1d as AdaptiveAvgPool1d
from ._pooling import AdaptiveAvgPool2d as AdaptiveAvgPool2d
from ._pooling import AdaptiveAvgPool3d as AdaptiveAvgPool3d
from ._pooling import AdaptiveMaxPool1d as AdaptiveMaxPool1d
from ._pooling import AdaptiveMaxPool2d as AdaptiveMaxPool2d
from ._pooling import AdaptiveMaxPool3d as AdaptiveMaxPool3d
from ._pooling import AvgPool1d as AvgPool1d
from ._pooling import AvgPool2d as AvgPool2d
from ._pooling import AvgPool3d as AvgPool3d
from ._pooling import LPPool1d as LPPool1d
from ._pooling import LPPool2d as LPPool2d
from ._pooling import LPPool3d as LPPool3d
from ._pooling import MaxPool1d as MaxPool1d
from ._pooling import MaxPool2d as MaxPool2d
from ._pooling import MaxPool3d as MaxPool3d
from ._pooling import MaxUnpool1d as MaxUnpool1d
from ._pooling import MaxUnpool2d as MaxUnpool2d
from ._pooling import MaxUnpool3d as MaxUnpool3d
from ._rnn import GRU as GRU
from ._rnn import LSTM as LSTM
from ._rnn import RNN as RNN
from ._rnn_cell import GRUCell as GRUCell
from ._rnn_cell import LSTMCell as LSTMCell
from ._rnn_cell import RNNCell as RNNCell
from ._shape import ChannelShuffle as ChannelShuffle
from ._shape import Flatten as Flatten
from ._shape import Fold as Fold
from ._shape import PixelShuffle as PixelShuffle
from ._shape import PixelUnshuffle as PixelUnshuffle
from ._shape import Unflatten as Unflatten
from ._shape import Unfold as Unfold
from ._shape import Upsample as Upsample
from ._shape import UpsamplingBilinear2d as UpsamplingBilinear2d
from ._shape import UpsamplingNearest2d as UpsamplingNearest2d
from ._sparse import Embedding as Embedding
from ._sparse import EmbeddingBag as EmbeddingBag
from ._transformer import TransformerDecoderLayer as TransformerDecoderLayer
from ._transformer import TransformerEncoderLayer as TransformerEncoderLayer
from ._transformer_stack import Transformer as Transformer
from ._transformer_stack import TransformerDecoder as TransformerDecoder
from ._transformer_stack import TransformerEncoder as TransformerEncoder
from .array_module import ArrayModule as ArrayModule
from .random_streams import get_rng_state as get_rng_state
from .random_streams import seed as seed
from .random_streams import set_rng_state as set_rng_state

__all__ = [
    "GLU", "GRU", "LSTM", "RNN", "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AlphaDropout", "ArrayModule",
    "AvgPool1d", "AvgPool2d", "AvgPool3d", "BCELoss", "BCEWithLogitsLoss", "BatchNorm1d", "BatchNorm2d",
    "BatchNorm3d", "Bilinear", "CTCLoss", "ChannelShuffle", "CircularPad1d", "CircularPad2d",
    "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "Conv1d", "Conv2d", "Conv3d",
    "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "CosineEmbeddingLoss", "CosineSimilarity",
    "CrossEntropyLoss", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "Embedding", "EmbeddingBag",
    "FeatureAlphaDropout", "Flatten", "Fold", "GRUCell", "GaussianNLLLoss", "GroupNorm",
    "HingeEmbeddingLoss", "HuberLoss", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "KLDivLoss",
    "L1Loss", "LPPool1d", "LPPool2d", "LPPool3d", "LSTMCell", "LayerNorm", "Linear",
    "LinearCrossEntropyLoss", "LocalResponseNorm", "LogSoftmax", "MSELoss", "MarginRankingLoss",
    "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
    "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "MultiheadAttention", "NLLLoss",
    "NLLLoss2d", "PReLU", "PairwiseDistance", "PixelShuffle", "PixelUnshuffle", "PoissonNLLLoss", "RMSNorm",
    "RNNCell", "RReLU", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d",
    "ReplicationPad2d", "ReplicationPad3d", "SmoothL1Loss", "SoftMarginLoss", "Softmax", "Softmax2d",
    "Softmin", "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer", "TripletMarginLoss", "TripletMarginWithDistanceLoss", "Unflatten", "Unfold",
    "Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
    "array", "checkpoint", "compute_dtype", "functional", "get_rng_state", "seed", "set_rng_state",
]  # fmt: skip

_LAYERS = {
    name: value
    for name, value in globals().items()
    if name in __all__
    and isinstance(value, type)
    and issubclass(value, ArrayModule)
    and value is not ArrayModule
}


def array(B: int) -> ArrayNamespace:
    """Return `torch.nn` for arrays of B models; B=0 is torch's own."""
    return ArrayNamespace(B, _LAYERS)
