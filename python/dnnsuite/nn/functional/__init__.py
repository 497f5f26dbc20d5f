# SPDX-License-Identifier: MIT
"""`torch.nn.functional` for an array: the same names, arguments and defaults, and every tensor `[B, ...]`.

B is the size of dimension 0 of the tensors, so a function serves an array and any part of it.
"""

from .activation import celu as celu
from .activation import celu_ as celu_
from .activation import elu as elu
from .activation import elu_ as elu_
from .activation import gelu as gelu
from .activation import glu as glu
from .activation import gumbel_softmax as gumbel_softmax
from .activation import hardshrink as hardshrink
from .activation import hardsigmoid as hardsigmoid
from .activation import hardswish as hardswish
from .activation import hardtanh as hardtanh
from .activation import hardtanh_ as hardtanh_
from .activation import leaky_relu as leaky_relu
from .activation import leaky_relu_ as leaky_relu_
from .activation import log_softmax as log_softmax
from .activation import logsigmoid as logsigmoid
from .activation import mish as mish
from .activation import prelu as prelu
from .activation import relu as relu
from .activation import relu6 as relu6
from .activation import relu_ as relu_
from .activation import rrelu as rrelu
from .activation import rrelu_ as rrelu_
from .activation import selu as selu
from .activation import selu_ as selu_
from .activation import sigmoid as sigmoid
from .activation import silu as silu
from .activation import softmax as softmax
from .activation import softmin as softmin
from .activation import softplus as softplus
from .activation import softshrink as softshrink
from .activation import softsign as softsign
from .activation import tanh as tanh
from .activation import tanhshrink as tanhshrink
from .activation import threshold as threshold
from .activation import threshold_ as threshold_
from .attention import scaled_dot_product_attention as scaled_dot_product_attention
from .bilinear import bilinear as bilinear
from .convolution import conv1d as conv1d
from .convolution import conv2d as conv2d
from .convolution import conv3d as conv3d
from .convolution import conv_transpose1d as conv_transpose1d
from .convolution import conv_transpose2d as conv_transpose2d
from .convolution import conv_transpose3d as conv_transpose3d
from .distance import cosine_similarity as cosine_similarity
from .distance import pairwise_distance as pairwise_distance
from .distance_loss import gaussian_nll_loss as gaussian_nll_loss
from .distance_loss import huber_loss as huber_loss
from .distance_loss import kl_div as kl_div
from .distance_loss import l1_loss as l1_loss
from .distance_loss import mse_loss as mse_loss
from .distance_loss import poisson_nll_loss as poisson_nll_loss
from .distance_loss import smooth_l1_loss as smooth_l1_loss
from .dropout import alpha_dropout as alpha_dropout
from .dropout import dropout as dropout
from .dropout import dropout1d as dropout1d
from .dropout import dropout2d as dropout2d
from .dropout import dropout3d as dropout3d
from .dropout import feature_alpha_dropout as feature_alpha_dropout
from .linear import linear as linear
from .linear import linear_cross_entropy as linear_cross_entropy
from .loss import binary_cross_entropy as binary_cross_entropy
from .loss import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from .loss import cross_entropy as cross_entropy
from .loss import multi_margin_loss as multi_margin_loss
from .loss import multilabel_margin_loss as multilabel_margin_loss
from .loss import multilabel_soft_margin_loss as multilabel_soft_margin_loss
from .loss import nll_loss as nll_loss
from .maximum import max as max
from .normalization import batch_norm as batch_norm
from .normalization import batch_norm_act as batch_norm_act
from .normalization import batch_norm_max as batch_norm_max
from .normalization import group_norm as group_norm
from .normalization import has_batch_norm_max as has_batch_norm_max
from .normalization import instance_norm as instance_norm
from .normalization import layer_norm as layer_norm
from .normalization import local_response_norm as local_response_norm
from .normalization import normalize as normalize
from .normalization import rms_norm as rms_norm
from .pooling import adaptive_avg_pool1d as adaptive_avg_pool1d
from .pooling import adaptive_avg_pool2d as adaptive_avg_pool2d
from .pooling import adaptive_avg_pool3d as adaptive_avg_pool3d
from .pooling import adaptive_max_pool1d as adaptive_max_pool1d
from .pooling import adaptive_max_pool2d as adaptive_max_pool2d
from .pooling import adaptive_max_pool3d as adaptive_max_pool3d
from .pooling import avg_pool1d as avg_pool1d
from .pooling import avg_pool2d as avg_pool2d
from .pooling import avg_pool3d as avg_pool3d
from .pooling import lp_pool1d as lp_pool1d
from .pooling import lp_pool2d as lp_pool2d
from .pooling import lp_pool3d as lp_pool3d
from .pooling import max_pool1d as max_pool1d
from .pooling import max_pool1d_with_indices as max_pool1d_with_indices
from .pooling import max_pool2d as max_pool2d
from .pooling import max_pool2d_with_indices as max_pool2d_with_indices
from .pooling import max_pool3d as max_pool3d
from .pooling import max_pool3d_with_indices as max_pool3d_with_indices
from .pooling import max_pool_of_relu as max_pool_of_relu
from .ranking_loss import cosine_embedding_loss as cosine_embedding_loss
from .ranking_loss import ctc_loss as ctc_loss
from .ranking_loss import hinge_embedding_loss as hinge_embedding_loss
from .ranking_loss import margin_ranking_loss as margin_ranking_loss
from .ranking_loss import soft_margin_loss as soft_margin_loss
from .ranking_loss import triplet_margin_loss as triplet_margin_loss
from .ranking_loss import triplet_margin_with_distance_loss as triplet_margin_with_distance_loss
from .recurrent import gru_cell as gru_cell
from .recurrent import lstm_cell as lstm_cell
from .recurrent import rnn_relu_cell as rnn_relu_cell
from .recurrent import rnn_tanh_cell as rnn_tanh_cell
from .sparse import embedding as embedding
from .sparse import embedding_bag as embedding_bag
from .unpooling import max_unpool1d as max_unpool1d
from .unpooling import max_unpool2d as max_unpool2d
from .unpooling import max_unpool3d as max_unpool3d
from .vision import affine_grid as affine_grid
from .vision import channel_shuffle as channel_shuffle
from .vision import fold as fold
from .vision import grid_sample as grid_sample
from .vision import interpolate as interpolate
from .vision import pad as pad
from .vision import pixel_shuffle as pixel_shuffle
from .vision import pixel_unshuffle as pixel_unshuffle
from .vision import unfold as unfold
from .vision import upsample as upsample
from .vision import upsample_bilinear as upsample_bilinear
from .vision import upsample_nearest as upsample_nearest

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "affine_grid", "alpha_dropout", "avg_pool1d",
    "avg_pool2d", "avg_pool3d", "batch_norm", "batch_norm_act", "batch_norm_max", "bilinear",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "celu", "celu_", "channel_shuffle",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "cosine_embedding_loss", "cosine_similarity", "cross_entropy", "ctc_loss", "dropout", "dropout1d",
    "dropout2d", "dropout3d", "elu", "elu_", "embedding", "embedding_bag", "feature_alpha_dropout", "fold",
    "gaussian_nll_loss", "gelu", "glu", "grid_sample", "group_norm", "gru_cell", "gumbel_softmax",
    "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hardtanh_", "hinge_embedding_loss", "huber_loss",
    "instance_norm", "interpolate", "kl_div", "l1_loss", "layer_norm", "leaky_relu", "leaky_relu_",
    "linear", "linear_cross_entropy", "local_response_norm", "log_softmax", "logsigmoid", "lp_pool1d",
    "lp_pool2d", "lp_pool3d", "lstm_cell", "margin_ranking_loss", "max", "max_pool1d",
    "max_pool1d_with_indices", "max_pool2d", "max_pool2d_with_indices", "max_pool3d",
    "max_pool3d_with_indices", "max_unpool1d", "max_unpool2d", "max_unpool3d", "mish", "mse_loss",
    "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss", "normalize",
    "pad", "pairwise_distance", "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss", "prelu", "relu",
    "relu6", "relu_", "rms_norm", "rnn_relu_cell", "rnn_tanh_cell", "rrelu", "rrelu_",
    "scaled_dot_product_attention", "selu", "selu_", "sigmoid", "silu", "smooth_l1_loss",
    "soft_margin_loss", "softmax", "softmin", "softplus", "softshrink", "softsign", "tanh", "tanhshrink",
    "threshold", "threshold_", "triplet_margin_loss", "triplet_margin_with_distance_loss", "unfold",
    "upsample", "upsample_bilinear", "upsample_nearest",
]  # fmt: skip
