# SPDX-License-Identifier: MIT
"""The class of an operator by its name: what kind of work it is, and so what would make it faster."""

from __future__ import annotations

import functools
import re

__all__ = ["CLASSES", "op_class"]

CLASSES = {
    "gemm": "matrix products: linear layers, projections",
    "attention": "fused scaled-dot-product attention",
    "conv": "convolutions",
    "recurrent": "LSTM, GRU and RNN layers",
    "norm": "batch, layer, group and RMS normalisation",
    "pool": "pooling and resampling",
    "embedding": "look-ups by index: embedding, gather, scatter",
    "loss": "softmax and losses",
    "reduction": "sums, means, extrema, norms, sorting",
    "elementwise": "element by element: activations, additions, dropout, masks, random numbers",
    "copy": "copies, casts, transposes to memory, concatenation, fills",
    "communication": "collectives and messages between processes",
    "optimizer": "everything inside an optimizer's step",
    "other": "operators of no class above: views, allocation",
}

# The first pattern found in the name without its namespace decides. An operator of none of them (views, allocation,
# autograd's own records, wrappers) counts for the operator that called it.
_PATTERNS = [
    (name, re.compile(pattern))
    for name, pattern in (
        ("communication", r"^(c10d|gloo|nccl|record_param_comms)|all_?reduce|all_?gather|reduce_scatter|all_to_all"),
        ("attention", r"scaled_dot_product|flash_attention|efficient_attention|(?<!multi_head_)attention"),
        ("conv", r"conv(?!ert)|im2col|col2im|thnn_.*conv"),
        ("recurrent", r"\b_?(lstm|gru|rnn)|mkldnn_rnn|recurrence"),
        ("gemm", r"^(addmm|mm|bmm|baddbmm|addbmm|addmv|mv|dot|vdot|matmul|linear|mkldnn_linear|gemm|bilinear|addr|ger"
                 r"|_scaled_mm|_int_mm|_addmm_activation|linear_backward|mkldnn_linear_backward.*)$|gemm|einsum"),
        ("norm", r"(batch|layer|group|instance|rms|weight)_?norm"),
        ("pool", r"pool|upsample|interpolate|grid_sampl|max_over"),
        ("embedding", r"embedding|gather|scatter|index|take|masked_select|one_hot|bucketize"),
        ("loss", r"softmax|nll|cross_entropy|_loss|logsumexp|ctc|kl_div"),
        ("copy", r"copy|^(to|_to_copy|contiguous|clone|cat|stack|fill_?|zero_?|zeros.*|ones.*|full.*|repeat|tile|roll"
                 r"|flip|pad|constant_pad_nd|reflection_pad.*|pin_memory|slice_backward|select_backward|arange|_cat)$"
                 r"|memcpy|memset"),
        ("reduction", r"^(sum|mean|var|std|var_mean|std_mean|max|min|amax|amin|argmax|argmin|norm|linalg_vector_norm"
                      r"|prod|cumsum|cumprod|sort|topk|any|all|median|unique.*|count_nonzero|histc|bincount|sum_to_size"
                      r"|_local_scalar_dense|item|equal|isfinite|isnan)$|vector_norm"),
        ("elementwise", r"^_foreach|^_fused|^(add|sub|mul|div|rsub|neg|abs|exp|expm1|log|log1p|log2|sqrt|rsqrt|square"
                        r"|pow|reciprocal|relu|relu6|leaky_relu|elu|selu|celu|silu|gelu|is.*inf|mish|softplus|hardswish|hardtanh"
                        r"|hardsigmoid|sigmoid|tanh|sin|cos|tan|erf|erfinv|clamp|clamp_min|clamp_max|where|masked_fill"
                        r"|threshold|dropout|native_dropout|feature_dropout|bernoulli|normal|uniform|random|rand.*"
                        r"|randn.*|addcmul|addcdiv|lerp|eq|ne|lt|le|gt|ge|maximum|minimum|sign|floor|ceil|round"
                        r"|remainder|fmod|logical_.*|bitwise_.*|sgn|atan2|atan|prelu|glu|tril|triu|affine|polar"
                        r"|complex|real|imag|angle)(_?backward.*|_)?$|dropout|activation|pointwise|elementwise"),
    )
]  # fmt: skip


@functools.lru_cache(maxsize=4096)
def op_class(name: str) -> str | None:
    """The class of an operator as torch's profiler names it (`aten::addmm`); None if its caller's counts.

    >>> op_class("aten::addmm"), op_class("aten::view"), op_class("aten::native_layer_norm_backward")
    ('gemm', None, 'norm')
    """
    if name.startswith(("c10d::", "gloo:", "nccl:", "mpi:")):
        return "communication"
    if name.startswith("Optimizer.step#"):
        return "optimizer"
    space, found, plain = name.rpartition("::")
    if found and space.startswith("autograd"):
        return None
    if not found and name.endswith(("Backward0", "Backward1", "Backward")):
        return None
    for kind, pattern in _PATTERNS:
        if pattern.search(plain):
            return kind
    return None
