# SPDX-License-Identifier: MIT
"""Class of an operator by its name, the phase of a step that an event opens, and the nesting of a thread's events.

Names of torch's own namespaces are told by rules; one that none knows is `other`. What has another name is a
collective, a compiled graph, work of an extension (`custom`), or a call around operators (`frame`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..._lazy import numpy as np
from .._breakdown import FRAME

CLOSURE = "Optimizer.closure"
"""Annotation around a closure that an optimizer's step calls: what is in it is no update."""

_OURS = re.compile(
    r"(aten|dnnsuite|torchvision|quantized|mkldnn|prims|onednn|inductor|sparse|mkl|mkldnn_prepacked|_quantized)::(.+)$"
)
_COMMUNICATION = re.compile(
    r"(gloo|nccl|mpi|ucc|xccl|hccl|rccl|oneccl)\w*[:_]|_?c10d(_functional(_autograd)?)?::|symm_mem::|record_param_comms$"
)
_COMPILED = re.compile(r"## Call CompiledFxGraph|triton_|(graph_\w+_)?cpp_fused|AOTInductor", re.IGNORECASE)
_BUCKETS = re.compile(r"torch(\.|::)distributed.*::(mul_out|copy_)")  # DistributedDataParallel moves gradients
# Identifiers that are no function of the user's: autograd's nodes, and functions of torch's that only call others.
_FRAMES = re.compile(
    r"\w+Backward\d+$|Compiled\w+$|detach$|Checkpoint\w+$|_?DDPSink\w*$|BackwardHook\w+$|(Broadcast|ReduceAdd\w*|Scatter"
    r"|Gather)(Backward)?$|(forward|backward|step)$"
)
_OF_COMPILE = re.compile(r"## Call CompiledFxGraph|Torch-Compiled Region|Compiled(Function|Autograd)|TorchDynamo ")

# The first that matches counts. Names without namespace and `_foreach_`; `_` of an in-place operator is left on.
_CLASSES = (
    ("optimizer", r"optimizer_|^_fused_(adam|sgd|adagrad)"),
    ("attention", r"attention|flash_attn"),
    ("recurrence", r"lstm|gru_|gru$|rnn|recurrence"),
    ("copy", r"convert|^_?to(_|$)|^_cast_|reorder"),
    ("conv", r"conv|depthwise"),
    (
        "gemm",
        r"(^|_)(int\d)?(mm|bmm|addmm|baddbmm|addbmm|hspmm|smm|sspaddmm|mv|addmv|dot|vdot|vecdot|ger|addr|q?linear"
        r"|bilinear|matmul|einsum|tensordot|inner|outer|kron)(_|$)|multi_dot|gemm|int4mm|pixel_products|sum_of_products",
    ),
    ("norm", r"(batch|layer|group|instance|rms|weight|response)_norm|norm_act"),
    ("random", r"dropout|bernoulli|^rand|random|(^|_)normal(_|$)|uniform|multinomial|^(exponential|cauchy|geometric)"
               r"|poisson$|binomial|dirichlet$|standard_gamma$|philox|sobol"),
    ("loss", r"cross_entropy|_loss(_|$|\d)|bce|kl_div"),
    ("softmax", r"softmax|logsumexp"),
    ("embedding", r"embedding"),
    ("pooling", r"(max|avg|lp|adaptive|fractional|roi)\w*pool|pool[123]d|unpool|max_over|upsample|interpolate|resample"
                r"|grid_sampl|roi_align"),
    ("fft", r"^_?fft_[cr0-9ih]|^_?fft_\w?fft|^i?stft|cufft"),
    ("linalg", r"cholesky|svd|(^|_)qr$|geqrf|orgqr|ormqr|(^|_)eig|(^|_)lu(_|$)|lstsq|(^|_)solve|inverse"
               r"|(^|_)p?inv(_ex)?$|pinverse|(^|_)(log)?(abs)?det$|slogdet|matrix_(exp|power|rank)|householder|ldl_"),
    (
        "alloc",
        r"^(empty|_empty|new_|zeros|ones|full|_?resize|zero_?$|fill_?$|arange|range|linspace|logspace|scalar_tensor|eye|iota"
        r"|set_?$|_efficientzero|_no_grad_|tensor$|as_tensor|\w+_window$|tril_indices|triu_indices|_alloc)",
    ),
    (
        "view",
        r"^(view|reshape|_reshape|_unsafe_view|as_strided$|t_?$|transpose|permute|expand|select$|slice$|narrow|squeeze"
        r"|unsqueeze|detach|alias|flatten|unflatten|split|chunk|unsafe_(split|chunk)|unbind|resolve_|lift|movedim|moveaxis"
        r"|swap(axes|dims)|numpy_T|[mM]?[TH]$|adjoint|item|_local_scalar|broadcast_|diagonal$|unfold$|real$|imag$|_?conj$"
        r"|_reinterpret|size|stride|sym_|numel|is_|_is_|_has|result_type|promote_types|requires_grad_|data$|set_data"
        r"|_version|output_nr|can_cast|dim$|storage|meshgrid|atleast|collapse|squeeze_|_values|_indices|values$|indices$"
        r"|_neg_view|hsplit|vsplit|dsplit|tensor_split|_fused_sdp_choice|_assert|instruction_set|_nested_get)",
    ),
    (
        "copy",
        r"copy(?!sign)|clone|contiguous|cat(_|$|enate)|stack$|index|gather|scatter|take|pad(_|$|\d)|roll|flip|repeat|tile$|rot90"
        r"|select_backward|slice_(backward|inverse|scatter)|tril|triu|where|masked|type_as|pin_memory|device_put|rev$"
        r"|unfold_backward|im2col|col2im|patches|rearranged|pixel_(un)?shuffle|channel_shuffle|diag|put_?$|one_hot"
        r"|fftshift|coalesce|mkldnn_(reshape|transpose)|block_diag|_pack_|as_strided_scatter|expand_copy",
    ),
    (
        "reduction",
        r"^_?(sparse_|nested_)?(nan)?(sum|mean|max|min|amax|amin|aminmax|argmax|argmin|prod|var|std|any|all|topk|a?r?g?sort|msort|cumsum|cumprod"
        r"|cummax|cummin|cummaxmin|logcumsumexp|count|median|mode|kthvalue|quantile|histc|histogram|bincount|unique"
        r"|searchsorted|bucketize|trace|isin|allclose|equal|nonzero|segment_reduce|powsum|xor_sum)(_|$|\d|dd)"
        r"|norms?(_|$|\d)|(^|_)[cp]?dist(_|$)|euclidean|aminmax|value_selecting|grad_sum_to_size|cosine_similarity",
    ),
)  # fmt: skip
_COMPILED_RULES = tuple((name, re.compile(pattern)) for name, pattern in _CLASSES)
_AROUND = re.compile(r"^_*(special_)?|(_backward\w*|_jvp|_forward|_functional|_out|_scalar|_kernel|_physical)+$|_+$")
_ELEMENT_BY_ELEMENT = """
__and__ __iand__ __ilshift__ __ior__ __irshift__ __ixor__ __lshift__ __or__ __rshift__ __xor__ abs absolute
accumulate_grad acos acosh activate add add_relu addcdiv addcmul airy_ai amp_foreach_non_finite_check_and_unscale
amp_update_scale angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh bessel_i0
bessel_i0e bessel_i1 bessel_i1e bessel_j0 bessel_j1 bitwise_and bitwise_left_shift bitwise_not bitwise_or
bitwise_right_shift bitwise_xor cbrt ceil celu clamp clamp_max clamp_min clip complex conj copysign cos cosh cross
deg2rad dequantize digamma dirichlet_grad div divide elu entr eq erf erf_inv erfc erfcx erfinv exp exp2 expit expm1
fabs fake_quantize float_power floor floor_divide fmax fmin fmod frac frexp gammainc gammaincc gammaln gcd ge geglu
gelu glu greater greater_equal gt hardshrink hardsigmoid hardswish hardtanh heaviside hypot i0 i0e i1 i1e igamma
igammac isclose isfinite isinf isnan isneginf isposinf isreal lcm ldexp le leaky_relu lerp less less_equal lgamma
linalg_cross log log10 log1p log2 log_ndtr log_sigmoid logaddexp logaddexp2 logical_and logical_not logical_or
logical_xor logit lt maximum maximum_value minimum minimum_value mish mul mul_relu multigammaln multiply mvlgamma
nan_to_num ndtr ndtri ne neg negative nextafter not_equal polar polygamma positive pow prelu psi qadd qadd_relu qmul
quantize_per_channel quantize_per_tensor rad2deg reciprocal relu relu6 remainder round rrelu rrelu_with_noise rsqrt
rsub scaled selu sgn shift_left shift_right_arithmetic sigmoid sign signbit silu sin sinc sinh softplus softshrink
spherical_bessel_j0 sqrt square standard_gamma_grad sub subtract swiglu tan tanh threshold transform_bias_rescale_qkv
true_divide trunc xlog1py xlogy zeta
"""
_ELEMENTWISE = frozenset(_ELEMENT_BY_ELEMENT.split())

_OPTIMIZER = re.compile(r"^Optimizer\.(?!closure)|::optimizer_|::_foreach_(?!norm|zero)|::_fused_(adam|sgd|adagrad)")
_BACKWARD = re.compile(r"^autograd::engine|Backward\d*$|_backward")
_DATA = re.compile(r"^enumerate\(DataLoader")


@functools.cache
def class_of(name: str, annotation: bool = False) -> str:
    """Return the class: gemm, conv, attention, norm, ...; `other` for an operator of torch's that no rule knows.

    Args:
        name: the operator, with its namespace, or what else was recorded.
        annotation: True for an annotation: as such only collectives and compiled graphs are work.
    """
    if _COMMUNICATION.match(name):
        return "communication"
    if _COMPILED.match(name):
        return "compiled"
    if annotation:
        return FRAME
    ours = _OURS.match(name)
    if ours is not None:
        return _class_of_operator(ours[2].removeprefix("_foreach_"))
    if _BUCKETS.match(name):
        return "copy"
    if name.startswith(("autograd::", "torch::", "torch.", "profiler::", "prim::")):
        return FRAME
    if "::" in name:
        return "custom"
    return "custom" if name.isidentifier() and not _FRAMES.match(name) else FRAME


def _class_of_operator(name: str) -> str:
    for kind, pattern in _COMPILED_RULES:
        if pattern.search(name):
            return kind
    stem = _AROUND.sub("", _AROUND.sub("", name)) or name
    special = re.match("special_|_?fake_quantize", name) is not None
    known = special or not _ELEMENTWISE.isdisjoint((stem, name))
    return "elementwise" if known else "other"


def is_compiled(name: str) -> bool:
    """Return True if an event with this name shows that torch.compile is in use."""
    return bool(_OF_COMPILE.match(name))


@functools.cache
def phase_of(name: str) -> str | None:
    """Return the phase that an event opens for itself and its inner events; None if it opens none."""
    if name == CLOSURE:
        return "forward"
    if _OPTIMIZER.search(name):
        return "optimizer"
    if _BACKWARD.search(name):
        return "backward"
    return "data" if _DATA.search(name) else None


def inner_phase(outer: str | None, own: str | None) -> str | None:
    """Return the phase of an event that would open `own` inside one of phase `outer`.

    The outer one knows better, but for an optimizer's closure, and for one that steps while gradients are computed.
    """
    if own is None or outer is None:
        return own or outer
    if outer in ("optimizer", "forward") or (outer == "backward" and own == "optimizer"):
        return own
    return outer


def replayed_phases(names: Sequence[str], phases: Sequence[str | None]) -> list[str | None]:
    """Find the phases of one thread's events, in order of time, also in a replayed step without autograd.

    There no event surrounds the operators of the backward pass, but some have telling names: from the first of them to
    the optimizer's, all are backward. Phases recorded from autograd itself stay.
    """
    if any(name.startswith("autograd::engine") for name in names):
        return list(phases)
    found: list[str | None] = []
    current: str | None = None
    for phase in phases:
        current = phase if phase is not None else current
        if current == "optimizer":
            current = None
        found.append(phase or current)
    return found


class Nesting(NamedTuple):
    """Places of events: index of the event around each (-1: none), its depth, and time that no inner event took."""

    parents: list[int]
    depths: list[int]
    self_ns: list[int]


def nest(threads: Sequence[int], t0_ns: Sequence[int], t1_ns: Sequence[int]) -> Nesting:
    """Nest the events of each thread; they may be in any order.

    An event is inside another one of its thread that began no later and has not ended when it begins. If events begin
    at the same time, the longer one is outside, then the one that comes first.
    """
    begins, ends = (np.asarray(each, np.int64) for each in (t0_ns, t1_ns))
    order = np.lexsort((-ends, begins, np.asarray(threads, np.int64))).tolist()
    parents, depths = [-1] * len(order), [0] * len(order)
    self_ns = [max(0, t1 - t0) for t0, t1 in zip(t0_ns, t1_ns, strict=True)]
    opened: list[int] = []  # of one thread
    thread = None
    for i in order:
        if threads[i] != thread:
            opened, thread = [], threads[i]
        while opened and t1_ns[opened[-1]] <= t0_ns[i]:
            opened.pop()
        if opened:
            outer = opened[-1]
            parents[i], depths[i] = outer, len(opened)
            self_ns[outer] -= min(t1_ns[i], t1_ns[outer]) - t0_ns[i]
        opened.append(i)
    return Nesting(parents, depths, [max(0, each) for each in self_ns])


class RecordedArguments(NamedTuple):
    """Arguments of one recorded event; shapes and strides are empty, and values None, where they do not apply.

    An operator that TorchScript's interpreter calls is recorded with the interpreter's whole stack: its own arguments
    are the last.
    """

    shapes: Sequence[Sequence[int]]  # of tensors
    values: Sequence[Any]  # of other arguments
    nested_shapes: Sequence[Any]  # shapes, and lists of shapes for lists of tensors
    nested_strides: Sequence[Any]  # in the same places
    dtypes: Sequence[str]  # names of C++ types

    @classmethod
    def of(cls, event: Any) -> RecordedArguments:
        """Take the arguments of an event of torch.profiler's."""
        shapes = event.shapes()
        count = argument_count(event.name(), getattr(event, "overload_name", str)())
        foreign = max(0, len(shapes) - count) if count is not None else 0
        others = (
            event.concrete_inputs(), event.structured_input_shapes(), event.structured_input_strides(), event.dtypes()
        )  # fmt: skip
        return cls(*(each[foreign:] for each in (shapes, *others)))


@functools.lru_cache(maxsize=4096)
def argument_count(name: str, overload: str = "") -> int | None:
    """Return the number of arguments of an overload of operator `name`, as `aten::mm`; None if there is none."""
    import torch

    namespace, _, operator = name.partition("::")
    found = getattr(getattr(torch.ops, namespace, None), operator, None) if operator else None
    schema = getattr(getattr(found, overload or "default", None), "_schema", None)
    return None if schema is None else len(schema.arguments)
