# SPDX-License-Identifier: MIT
"""Operators over an array of B models; dimension 0 of every tensor is the model.

Each is registered with torch as `torch.ops.dnnsuite.<name>` (CPU and CUDA kernels, autograd, shapes for
`torch.compile`). A model's result does not depend on the number of models, its place among them, or the number of
threads; on a GPU, where torch's products and convolutions are used, except for rounding.
"""

from ._activate import activate as activate
from ._attention import LONGEST_ATTENTION as LONGEST_ATTENTION
from ._attention import attention as attention
from ._attention import attention_by_products as attention_by_products
from ._batch_norm import NORM_ACTIVATIONS as NORM_ACTIVATIONS
from ._batch_norm import batch_norm_act as batch_norm_act
from ._batch_norm import batch_norm_act_running as batch_norm_act_running
from ._batch_norm_max import MAX_ACTIVATIONS as MAX_ACTIVATIONS
from ._batch_norm_max import batch_norm_max as batch_norm_max
from ._convolution import ConvolutionGeometry as ConvolutionGeometry
from ._convolution import convolve_models as convolve_models
from ._cross_entropy import cross_entropy as cross_entropy
from ._depthwise import depthwise as depthwise
from ._embedding import embedding as embedding
from ._embedding_bag import embedding_bags as embedding_bags
from ._glu import glu as glu
from ._gradient import as_real as as_real
from ._gradient import clamp_gradients_ as clamp_gradients_
from ._gradient import gradient_norms as gradient_norms
from ._gradient import scale_gradients_ as scale_gradients_
from ._group_norm import group_norm as group_norm
from ._group_norm import has_group_norm as has_group_norm
from ._layer_norm import bias_dropout_add_layer_norm as bias_dropout_add_layer_norm
from ._layer_norm import layer_norm as layer_norm
from ._linear import linear as linear
from ._linear_cross_entropy import linear_cross_entropy as linear_cross_entropy
from ._matmul import matmul as matmul
from ._max_over import max_over as max_over
from ._patches import add_patches as add_patches
from ._patches import patches as patches
from ._pixel_products import pixel_products as pixel_products
from ._pointwise import bias_act_dropout as bias_act_dropout
from ._pointwise import bias_dropout_add as bias_dropout_add
from ._pointwise import dropout as dropout
from ._pool import MOST_TAPS as MOST_TAPS
from ._pool import avg_pool as avg_pool
from ._pool import max_pool as max_pool
from ._pool import max_pool_with_indices as max_pool_with_indices
from ._prelu import prelu as prelu
from ._random import draws_numbers as draws_numbers
from ._random import random_numbers as random_numbers
from ._rearrange import copied_in_order as copied_in_order
from ._rearrange import rearranged as rearranged
from ._recurrence import GATES as GATES
from ._recurrence import recurrence as recurrence
from ._resample import resample as resample
from ._rms_norm import rms_norm as rms_norm
from ._scale import scaled as scaled
from ._softmax import short_softmax as short_softmax
from ._transposed_convolution import transposed_convolution as transposed_convolution
from ._transposed_convolution import transposed_depthwise as transposed_depthwise
from ._window_convolution import window_convolution as window_convolution
from .library import instruction_set as instruction_set
from .optimizer import RULES as RULES
from .optimizer import optimizer_ as optimizer_
from .optimizer import optimizer_plan as optimizer_plan
from .optimizer import optimizer_step_ as optimizer_step_

__all__ = [
    "GATES", "LONGEST_ATTENTION", "MAX_ACTIVATIONS", "MOST_TAPS", "NORM_ACTIVATIONS", "RULES",
    "ConvolutionGeometry", "add_patches", "attention", "attention_by_products", "avg_pool",
    "batch_norm_act", "batch_norm_act_running", "batch_norm_max", "bias_act_dropout", "bias_dropout_add",
    "bias_dropout_add_layer_norm", "clamp_gradients_", "convolve_models", "copied_in_order",
    "cross_entropy", "depthwise", "dropout", "embedding", "embedding_bags", "glu", "gradient_norms",
    "group_norm", "has_group_norm", "instruction_set", "layer_norm", "linear", "linear_cross_entropy",
    "matmul", "max_over", "max_pool", "max_pool_with_indices", "optimizer_", "optimizer_plan",
    "optimizer_step_", "patches", "pixel_products", "prelu", "rearranged", "recurrence", "resample",
    "rms_norm", "scale_gradients_", "scaled", "short_softmax", "transposed_convolution",
    "transposed_depthwise", "window_convolution",
]  # fmt: skip
