# SPDX-License-Identifier: MIT
"""Operators over an array of B models; dimension 0 of every tensor is the model.

Each is registered with torch as `torch.ops.dnnsuite.<name>` (CPU and CUDA kernels, autograd, shapes for
`torch.compile`). A model's result does not depend on how many models there are, which place it has among
them, or how many threads run.
"""

from ._attention import attention as attention
from ._cross_entropy import cross_entropy as cross_entropy
from ._embedding import embedding as embedding
from ._layer_norm import bias_dropout_add_layer_norm as bias_dropout_add_layer_norm
from ._layer_norm import layer_norm as layer_norm
from ._library import instruction_set as instruction_set
from ._linear import linear as linear
from ._matmul import matmul as matmul
from ._optimizer import adadelta_ as adadelta_
from ._optimizer import adam_ as adam_
from ._optimizer import sgd_ as sgd_
from ._pointwise import bias_act_dropout as bias_act_dropout
from ._pointwise import bias_dropout_add as bias_dropout_add
from ._pointwise import dropout as dropout
from ._recurrence import GATES as GATES
from ._recurrence import recurrence as recurrence

__all__ = [
    "GATES",
    "adadelta_",
    "adam_",
    "attention",
    "bias_act_dropout",
    "bias_dropout_add",
    "bias_dropout_add_layer_norm",
    "cross_entropy",
    "dropout",
    "embedding",
    "instruction_set",
    "layer_norm",
    "linear",
    "matmul",
    "recurrence",
    "sgd_",
]
