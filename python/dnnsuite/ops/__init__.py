# SPDX-License-Identifier: MIT
"""Operators over an array of B models; dimension 0 of every tensor is the model.

Each is registered with torch as `torch.ops.dnnsuite.<name>`, with kernels for CPU and CUDA, gradients, and shapes for
`torch.compile`. A model's result does not depend on the number of models, its position among them, or the number of
threads. On a GPU, where torch's matrix products and convolutions are used, this holds up to rounding.
"""

from ._activations import activate as activate
from ._activations import glu, prelu, scaled, short_softmax
from ._attention import LONGEST_ATTENTION, attention, attention_by_products
from ._batch_norm import MAX_ACTIVATIONS, NORM_ACTIVATIONS, batch_norm_act, batch_norm_act_running, batch_norm_max
from ._convolution import (
    ConvolutionGeometry,
    convolve_models,
    depthwise,
    transposed_convolution,
    transposed_depthwise,
    window_convolution,
)
from ._convolution import each_convolved as each_convolved
from ._images import add_patches, copied_in_order, patches, rearranged, resample
from ._linear import linear
from ._low_rank import low_rank, low_rank_update
from ._matmul import matmul, pixel_products
from ._norms import bias_dropout_add_layer_norm, group_norm, has_group_norm, layer_norm, rms_norm
from ._pointwise import bias_act_dropout, bias_dropout_add, dropout
from ._pointwise import draws_numbers as draws_numbers
from ._pointwise import random_numbers as random_numbers
from ._pool import MOST_TAPS, avg_pool, max_over, max_pool, max_pool_with_indices
from ._recurrence import GATES, recurrence
from ._vocabulary import chunk_rows as chunk_rows
from ._vocabulary import cross_entropy, embedding, embedding_bags, linear_cross_entropy
from .library import instruction_set
from .optimizer import (
    RULES,
    clamp_gradients_,
    gradient_norms,
    optimizer_,
    optimizer_plan,
    optimizer_step_,
    scale_gradients_,
)
from .optimizer import as_real as as_real

__all__ = [
    "GATES", "LONGEST_ATTENTION", "MAX_ACTIVATIONS", "MOST_TAPS", "NORM_ACTIVATIONS", "RULES",
    "ConvolutionGeometry", "add_patches", "attention", "attention_by_products", "avg_pool", "batch_norm_act",
    "batch_norm_act_running", "batch_norm_max", "bias_act_dropout", "bias_dropout_add",
    "bias_dropout_add_layer_norm", "clamp_gradients_", "convolve_models", "copied_in_order", "cross_entropy",
    "depthwise", "dropout", "embedding", "embedding_bags", "glu", "gradient_norms", "group_norm", "has_group_norm",
    "instruction_set", "layer_norm", "linear", "linear_cross_entropy", "low_rank", "low_rank_update", "matmul",
    "max_over", "max_pool", "max_pool_with_indices", "optimizer_", "optimizer_plan", "optimizer_step_", "patches",
    "pixel_products", "prelu", "rearranged", "recurrence", "resample", "rms_norm", "scale_gradients_", "scaled",
    "short_softmax", "transposed_convolution", "transposed_depthwise", "window_convolution",
]  # fmt: skip
