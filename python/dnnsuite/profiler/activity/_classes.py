# SPDX-License-Identifier: MIT
"""Class of a kernel by its name; the classes are those of operators."""

from __future__ import annotations

import re

import numpy as np

from ..._lazy import pandas as pd
from .._op_classes import CLASSES

__all__ = ["CLASSES", "classify", "classify_names"]

# The first that matches decides, so what is special comes before what it is made of: a convolution by implicit GEMM is
# a convolution, the copy that torch writes as an elementwise kernel is a copy. A rule is of a family of kernels.
_RULES = [(kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in (
    ("communication", r"nccl|rccl|nvshmem|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|cross_device_reduce"
     r"|multimem_|symm_mem|userbuffers|lamport|deep_?ep::"),
    ("elementwise", r"rotary|\brope|_rope_|apply_rope"),  # rotary embedding, which looks nothing up
    ("embedding", r"(?<!pos_)embedding|\btbe_|pooled_emb|linearize_index|bag_kernel|lookup_table"
     r"|compute_grad_weight|sum_and_scatter"),
    ("optimizer", r"(?<!un)fused_?(adam|sgd|lamb|adagrad|novograd|lion)|adam\w*(kernel|functor|cuda)"
     r"|Adam(W|Math|Mode|Functor)|(sgd|lamb|adagrad|rmsprop|momentum|adafactor)\w*(kernel|functor)"
     r"|Apply(Adam|Momentum|GradientDescent|Adagrad|Ftrl|RMSProp|CenteredRMSProp)|kOptimizer"
     r"|kPreconditionOptimizer|cleanup_?lamb|LAMBStage|\bmp_sgd|multi_?sgd"),
    ("reduction", r"multi_tensor_apply.*(L\d?|Lp|Max|Two|Inf)_?norm|lp_?norm|multi_tensor_l2norm"),
    ("elementwise", r"non_?finite_check|unscale_(kernel|cuda)|update_scale"),
    ("copy", r"multi_tensor_apply.*(Zero|Copy|Fill)Functor"),
    ("optimizer", r"multi_tensor_apply"),  # nearly all that updates lists of parameters
    ("conv", r"MIOpenConv"),
    ("fft", r"\b[sd]pRadix\d"),
    ("attention", r"flash_?(fwd|bwd|attn|attention|mla|decod|split|prefill|fprop|bprop)|\bflash::|pytorch_flash::"
     r"|fmha|(?<!after_)attention(?!_mask)|sdpa|mha_(fwd|bwd|varlen)|\bmla_|_mla_|Batch(Prefill|Decode)With"
     r"|sage_?(fwd|attn)|(^|[^a-z])attn_(fwd|bwd)|_attn_?(fwd|bwd|kernel)|splitkv|mem_eff|AttentionKernel"),
    ("recurrence", r"lstm|gru_|_gru|\bgru|GRU|rnn|elemwise_?bidir|persist(?!ent)(?=_?(fp|bp)_)|selective_scan"
     r"|ssm_scan"),
    ("softmax", r"softmax|GenerateNormalizedProb"),
    ("loss", r"nll_?loss|ClassNLL|cross_?entropy|\bctc|ctc_|_ctc|mse_|bce_|smooth_?l1|kl_?div|huber|margin_?loss"
     r"|_xent"),
    ("norm", r"(batch|layer|group|instance|rms)_?norm(?!al_)|(^|:|_)bn_?(fw|bw|inf|tr)|rowwise_?moments|gamma_?beta"
     r"|(add|quant)_rms|ComputeInternalGradients|Compute(Backward)?FusedParams|\blrn|_lrn|lrn(Forward|Backward)"
     r"|LocalResponse|\bln_(fwd|bwd)|(?<!l2)(?<!re)norm_(fwd|bwd|forward|backward)|welford_(norm|batch)"),
    # What cuDNN, MIOpen and CUTLASS compute convolutions with, also by FFT and Winograd, with the helpers of each
    ("conv", r"conv(?!er)|fprop|dgrad|wgrad|winograd|implicit_?gemm|im2?d?2?_?col|col2im|depth_?wise|[shix]cudnn"
     r"|\d+cudnn|cudnn_?\w*_?c?gemm|fft[12]d_[rc]2[rc]|DSE::|flip_filter|gcgemm|cgemmLDS"
     r"|pointwise_mult_and_sum_complex|compute_gemm_p|igemm_(fwd|bwd|wrw)|Sp3Asm|compute\w*OffsetsKernel"
     r"|cudnn\w*::.*(tensor_?transform|split_?k)|bwd_(weight|data)|cask\w*cudnn|cutlass\w*cudnn(?!.*gemm)"
     r"|calc_bias_diff"),
    ("pooling", r"pool(?!ed|_alloc)|upsample|interpolat|Resize(Bilinear|Nearest|Bicubic)|resample|grid_?sampl"
     r"|roi_?align|unpool"),
    ("random", r"dropout|masked_scale|distribution_|philox|curand|rocrand|hiprand|bernoulli|random"
     r"|(normal|uniform|exponential)_and_transform|generate_seed|threefry|\brng_|_rng_"),
    ("gemm", r"split_?k_?reduce|reduce_1Block|finalize_matmul"),
    ("reduction", r"radix|bitonic|(?<!ir)merge_?sort|\bsort|sort(kv|_kv|ing|ed|_pairs|_keys|Block)|topk|top_k"
     r"|argmax|argmin|arg_?min_?max|cumsum|cumprod|_scan_|scan_(kernel|dim|by)"
     r"|Device(\w*)(Scan|Reduce|Select|Histogram|RunLength|Unique)|lookback|searchsorted|bucketize|histogram"
     r"|unique|nonzero|partition_config"),
    ("copy", r"cat_?array|concat|\bgather|_gather|gather_(?!top)|scatter"
     r"|index_?(func|copy|put|add|fill|kernel|elementwise|select_(?=s?cat))|index_put|take_put"
     r"|masked_(fill|select)|nchwTo|nhwcTo|NCHW2|NHWC2|2NCHW|2NHWC|transpose|permute|recat|reshape_and_cache"
     r"|kv_?cache|roll_cuda|flip|reflection_pad|replication_pad|constant_pad|triu|tril"),
    ("embedding", r"index_?select"),
    ("linalg", r"potr[fsi]|getr[fsi]|geqr|orgqr|ormqr|\btrsm|_trsm|trtri|syev|gesvd|gesdd|jacobi|laswp|\blarf"
     r"|\bheev|cusolver|lu_pivot|cholesky"),
    ("fft", r"regular_fft|vector_fft|\bfft_|_fft_|cufft|composite_\w*fft|multi_bluestein|rocfft|fft_rtc"),
    ("gemm", r"(?<!fb)gemm(?!_?p)|gemv|gemvx|cutlass|nvjet|xmma|wgmma|cublas(?!trans)|split_?k|matmul|\bbmm_"
     r"|dot_kernel|\bdot_prod|Cijk_|fused_moe|marlin|machete|^(volta|turing|ampere|hopper|sm\d+)_\w*(mm|xmma)"
     r"|cublasLtEpilogue|kgemm|_mm_kernel"),
    ("reduction", r"reduce|reduction|ColumnReduce|_scan|scan_|BiasGrad"),
    ("copy", r"copy|fill|memset|memcpy|transpose|_to_copy|TensorConversion|float2half|half2float"
     r"|to_(float|half|hfp8|fp8|bf16|fp16)|convert_|quantiz|_quant_|quant_kernel|\bcast|_cast_|SwapDimension"
     r"|ShuffleInTensor|ConcatKernel|SplitKernel|tensor_?slic|TensorPadding|Dequantize"),
    ("elementwise", r"elementwise|element_wise|vectorized|pointwise|functor|binary|unary"
     r"|(add|sub|mul|div|bias|scal|scale|abs|exp|where)\w*_?kernel|gelu|relu|silu|swiglu|sigmoid|tanh"
     r"|EigenMetaKernel|TensorCwise|op_generic_tensor|op_tensor|activation_(fw|bw)|act_and_mul|scale\w*Tensor"
     r"|TensorOpWith|mxnet_generic_kernel|MapPlanKernel|BiasNHWC|BiasNCHW|add_tensor|loop_\w*fusion"),
)]  # fmt: skip
_FUNCTION = re.compile(r"(?:void |std::enable_if<.*?>::type )?(?:\((?:anonymous namespace|instance \d+)\)|[^<(])+")
# Kernels that say by a template's argument what they do.
_WRAPPERS = re.compile(
    r"(elementwise_kernel\w*|multi_tensor_apply\w*|\bKernel2?|device_kernel|kernel_agent|EigenMetaKernel|trampoline_kernel"
    r"|kentry|::kernel|generic_kernel|MapPlan\w*|(index|gpu)_kernel\w*)$"
)
_TYPES = re.compile(
    r"(cutlass|cute)::(bfloat16|half|tfloat32|float_\w+)_t|c10::\w+|fbgemm_gpu::|at::detail::Array|cublasGemvTensor\w*"
)
# Of torch.compile's kernels for GPUs: `triton_`, what kind of loop it is, then the operators that were fused into it.
_INDUCTOR = re.compile(r"triton_(poi|red|per|tem|mm|spl|for|unk)(?:_fused)?_?(\w*?)(?:_\d+)?(?:\.kd)?$")
_MOVING = """
to copy clone cat stack transpose permute view slice split unbind unsqueeze expand select t reshape unsafe contiguous
constant pad nd as strided index put gather scatter full zeros ones fill empty like embedding
"""
_MOVES = frozenset(_MOVING.split())


def classify(name: str) -> str:
    """Return the class of a kernel from its demangled name: one of :data:`CLASSES`, or `other` if no rule matches.

    >>> classify("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n"), classify("ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    ('gemm', 'communication')
    """
    fused = _INDUCTOR.match(name)
    if fused is not None:
        return _of_inductor(fused[1], fused[2])
    function = _FUNCTION.match(name)
    if function is not None and not _WRAPPERS.search(function[0]):
        own = _first_rule(function[0])  # of types and functors among its arguments nothing follows then
        if own != "other":
            return own
    return _first_rule(_TYPES.sub("", name))


def _first_rule(text: str) -> str:
    return next((kind for kind, pattern in _RULES if pattern.search(text)), "other")


def _of_inductor(loop: str, operators: str) -> str:
    """Return the class of a generated kernel: what its loop does, not all that was fused into it."""
    if loop in ("tem", "mm"):
        return "attention" if "attention" in operators else "conv" if "conv" in operators else "gemm"
    if loop in ("red", "per", "spl"):
        norm = re.search(r"(layer|batch|group|rms|instance)_norm", operators)
        return "softmax" if "softmax" in operators else "norm" if norm else "reduction"
    words = {*filter(None, operators.split("_"))}
    return "copy" if words and words <= _MOVES else "elementwise"


def classify_names(names: pd.Series) -> pd.Series:
    """Return the class of each kernel in a column of names `[N]`. Each distinct name is classified once."""
    column = names.astype("category").cat
    classes = [*CLASSES]
    of_name = [classes.index(classify(str(name))) for name in column.categories]
    found = np.array([*of_name, classes.index("other")])[column.codes.to_numpy()]  # code -1, no name: the last
    return pd.Series(pd.Categorical.from_codes(found, pd.Index(classes)), index=names.index)
