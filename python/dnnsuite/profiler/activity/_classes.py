# SPDX-License-Identifier: MIT
"""Class of a kernel by its name; the classes are those of operators."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from .._op_classes import CLASSES

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CLASSES", "classify", "classify_names"]

# The first that matches decides, so what is special comes before what it is made of: a convolution by implicit GEMM is
# a convolution, the copy that torch writes as an elementwise kernel is a copy.
_RULES = [
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        (
            "communication",
            r"nccl|rccl|nvshmem|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|multimem_|symm_mem",
        ),
        ("attention", r"flash|fmha|attention|sdpa|mha_(fwd|bwd)|_attn"),
        (
            "optimizer",
            r"multi_tensor_apply|fused_?(adam|sgd|lamb|adagrad)|adamw?_(kernel|functor)|sgd_kernel",
        ),
        (
            "conv",
            r"conv(?!ert)|fprop|dgrad|wgrad|winograd|implicit_?gemm|im2col|col2im|depthwise|nhwcTo|nchwTo|"
            r"cudnn.*(fft|tensor_?transform)",
        ),
        ("recurrence", r"lstm|gru_|_gru|rnn|elemwise_?bidir|persist(?!ent)"),
        (
            "norm",
            r"(batch|layer|group|instance|rms)_?norm|\bbn_|_bn_|rowwise_?moments|gamma_?beta|norm_kernel",
        ),
        ("softmax", r"softmax"),
        ("loss", r"nll_loss|cross_?entropy|ctc_loss|mse_|bce_|smooth_l1"),
        ("pooling", r"pool"),
        ("embedding", r"embedding|index_?(select|put|add|fill|kernel|elementwise)|gather|scatter|take_put"),
        (
            "gemm",
            r"gemm|gemv|cutlass|nvjet|xmma|wgmma|cublas|split_?k|matmul|triton_(tem|mm)|dot_kernel|"
            r"^(volta|turing|ampere|hopper|sm\d+)_",
        ),
        ("random", r"dropout|distribution|philox|curand|bernoulli"),
        (
            "reduction",
            r"sort|topk|top_k|bitonic|unique_|randperm|reduce|reduction|triton_(red|per)_|scan|cumsum|argmax|argmin",
        ),
        ("copy", r"copy|fill|memset|catarray|transpose|permute|_to_copy|roll_cuda|flip"),
        (
            "elementwise",
            r"elementwise|vectorized|pointwise|triton_poi|functor|binary|unary|add_kernel|mul_kernel|gelu|relu|silu",
        ),
    )
]


def classify(name: str) -> str:
    """Return the class of the kernel with this demangled name: one of :data:`CLASSES`, `other` if no rule matches.

    >>> classify("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n"), classify("ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    ('gemm', 'communication')
    """
    return next((kind for kind, pattern in _RULES if pattern.search(name)), "other")


def classify_names(names: pd.Series) -> pd.Series:
    """Return the class of each kernel in a column of names `[N]`; each distinct name is classified once."""
    import pandas as pd

    column = names.astype("category").cat
    classes = [*CLASSES]
    of_name = [classes.index(classify(str(name))) for name in column.categories]
    found = np.array([*of_name, classes.index("other")])[
        column.codes.to_numpy()
    ]  # code -1, no name: the last
    return pd.Series(pd.Categorical.from_codes(found, pd.Index(classes)), index=names.index)
