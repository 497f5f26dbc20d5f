# SPDX-License-Identifier: MIT
"""Tables from the decoder's columns: names for numbers, definitions, markers as ranges; and files of the columns, for
analysis on another machine, by a later version, or in a test.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._files import replacing
from ..._lazy import pandas as pd
from ...errors import Error
from .._breakdown import CLASSES
from ..instrument import define

TABLES = ("kernels", "memops", "api", "overhead", "markers", "syncs", "graphs")
WORK = ("device", "context", "stream", "correlation")
COLUMNS = {
    "kernels": ("t0_ns", "t1_ns", "name", *WORK, *(f"{name}_{axis}" for name in ("grid", "block", "cluster")
                for axis in "xyz"), "registers_per_thread", "static_shared_bytes", "dynamic_shared_bytes",
                "local_bytes_per_thread", "graph_id", "graph_node"),
    "memops": ("t0_ns", "t1_ns", "operation", "source_memory", "target_memory", "bytes", *WORK, "source_device",
               "target_device", "graph_id", "graph_node"),
    "api": ("t0_ns", "t1_ns", "domain", "callback", "thread", "correlation", "return_value"),
    "overhead": ("t0_ns", "t1_ns", "kind", "thread", "correlation"),
    "syncs": ("t0_ns", "t1_ns", "kind", "context", "stream", "event", "correlation"),
    "graphs": ("t0_ns", "t1_ns", *WORK, "graph_id"),
}  # fmt: skip
"""Columns of each table but `markers`, as the decoder gives them, in their order."""
MEMSET = 255  # among the numbers of operations

_OPERATIONS = {
    0: "unknown", 1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH",
    10: "PtoP", 11: "unified HtoD", 12: "unified DtoH", 13: "unified DtoD", MEMSET: "memset",
}  # fmt: skip
_MEMORIES = {
    0: "unknown", 1: "pageable", 2: "pinned", 3: "device", 4: "array", 5: "managed", 6: "device static",
    7: "managed static",
}  # fmt: skip
_SYNCS = {
    0: "unknown", 1: "event synchronize", 2: "stream wait event", 3: "stream synchronize", 4: "context synchronize",
}  # fmt: skip
_OVERHEADS = {
    0: "unknown", 1: "driver compiler", 1 << 16: "CUPTI buffer flush", 2 << 16: "CUPTI instrumentation",
    3 << 16: "CUPTI resource", 4 << 16: "module loading", 5 << 16: "lazy function loading",
    6 << 16: "command buffer full", 7 << 16: "activity buffer request", 8 << 16: "UVM activity init",
}  # fmt: skip
_DOMAINS = {0: "driver", 1: "runtime"}
_WORDS = (
    ("memops", "operation", _OPERATIONS), ("memops", "source_memory", _MEMORIES),
    ("memops", "target_memory", _MEMORIES), ("overhead", "kind", _OVERHEADS), ("syncs", "kind", _SYNCS),
)  # fmt: skip

_MEANINGS = {
    "t0_ns": "begin, ns of CLOCK_MONOTONIC; CUPTI maps the GPU's clock to it by interpolation",
    "t1_ns": "end, ns of CLOCK_MONOTONIC",
    "name": "demangled name of the kernel, or text of the marker",
    "class": "what the kernel is for, judged by its name",
    "device": "number of the GPU, as CUDA counts",
    "context": "CUPTI's number of the context",
    "stream": "CUPTI's number of the stream",
    "correlation": "number that it shares with the host call that launched it",
    **{f"grid_{axis}": "blocks" for axis in "xyz"},
    **{f"block_{axis}": "threads" for axis in "xyz"},
    **{f"cluster_{axis}": "blocks of a cluster" for axis in "xyz"},
    "registers_per_thread": "registers that a thread was given",
    "static_shared_bytes": "shared memory of a block that the kernel declares",
    "dynamic_shared_bytes": "shared memory of a block asked for at the launch",
    "local_bytes_per_thread": "local memory set aside for a thread",
    "graph_id": "CUDA graph that it was part of; 0 none",
    "graph_node": "node of that graph",
    "operation": "direction of the copy (H host, D device, A array, P peer; unified: pages that migrate), or memset",
    "source_memory": "kind of memory read",
    "target_memory": "kind of memory written",
    "bytes": "bytes copied or set",
    "source_device": "GPU that was read, where one was",
    "target_device": "GPU that was written, where one was",
    "domain": "runtime or driver; of a marker, its NVTX domain",
    "function": "the CUDA function that the host called",
    "thread": "native id of the thread; 0 where CUPTI names none",
    "return_value": "what the call returned; 0 is success",
    "kind": "which overhead, or which wait",
    "event": "CUPTI's number of the CUDA event",
    "category": "the marker's NVTX category",
    "payload": "number attached to the marker; NaN without one",
}

Columns = Mapping[str, Mapping[str, NDArray[Any]]]


def join_columns(parts: Sequence[Mapping[str, Any]]) -> tuple[dict[str, dict[str, NDArray[Any]]], list[str]]:
    """Join the decoder's columns of several windows: (columns by table, strings). A single part is not copied."""
    if len(parts) == 1:
        return parts[0]["tables"], parts[0]["strings"]
    strings: list[str] = []
    tables: dict[str, dict[str, list[NDArray[Any]]]] = {}
    for part in parts:
        for table, columns in part["tables"].items():
            for column, values in columns.items():
                moved = values
                if table in ("kernels", "markers") and column in ("name", "domain"):  # indices of strings
                    moved = np.where(values < 0, values, values + len(strings)).astype(np.int32)
                tables.setdefault(table, {}).setdefault(column, []).append(moved)
        strings += part["strings"]
    return {
        table: {column: np.concatenate(pieces) for column, pieces in columns.items()}
        for table, columns in tables.items()
    }, strings


def tables_of(
    columns: Columns, strings: Sequence[str], function_name: Callable[[int, int], str]
) -> dict[str, pd.DataFrame]:
    """Make the tables of :data:`TABLES` with definitions, rows ordered by begin.

    Args:
        columns: columns [rows] by table, as the decoder gives them; what a source lacks is empty, or 0.
        strings: the text for each index in a column of names.
        function_name: the name of a host call from its domain (1 the runtime, 0 the driver) and number.
    """
    found = {}
    for name in (name for name in TABLES if name != "markers"):
        given = columns.get(name, {})
        none = np.zeros(len(next(iter(given.values()), ())), np.int64)
        found[name] = pd.DataFrame({column: given.get(column, none) for column in COLUMNS[name]}, copy=False)
    found["kernels"]["name"] = _texts(found["kernels"]["name"].to_numpy(), strings)
    found["kernels"].insert(3, "class", classify_names(found["kernels"]["name"]))
    for name, column, words in _WORDS:
        found[name][column] = _words(found[name][column].to_numpy(), words)
    found["api"] = _api(found["api"], function_name)
    found["markers"] = _markers(columns["markers"], columns["marker_data"], strings)
    for name, table in found.items():
        if not table["t0_ns"].is_monotonic_increasing:
            found[name] = table.sort_values("t0_ns", kind="stable", ignore_index=True)
    return {name: define(found[name], _MEANINGS) for name in TABLES}


def _texts(codes: NDArray[np.int32], strings: Sequence[str]) -> pd.Categorical[Any]:
    """Convert indices to texts; -1 is missing. Several indices may have one text."""
    texts, code_of = np.unique(np.array(strings, dtype=object), return_inverse=True)
    translated = np.r_[code_of, -1][codes]  # -1 is the last
    return pd.Categorical.from_codes(translated, pd.Index(texts))


def _words(values: NDArray[Any], words: Mapping[int, str]) -> pd.Categorical[Any]:
    """Convert a library's numbers to words; an unknown number stays."""
    numbers, codes = np.unique(values, return_inverse=True)
    return pd.Categorical.from_codes(
        codes.astype(np.int64), pd.Index([words.get(int(n), f"number {int(n)}") for n in numbers])
    )


def _api(table: pd.DataFrame, function_name: Callable[[int, int], str]) -> pd.DataFrame:
    domain = table["domain"].to_numpy()
    keys = domain.astype(np.int64) << 32 | table.pop("callback").to_numpy().astype(np.int64)
    numbers, codes = np.unique(keys, return_inverse=True)
    domains, callbacks = (numbers >> 32).tolist(), (numbers & 0xFFFFFFFF).tolist()
    names = [
        function_name(domain, callback) or f"{_DOMAINS[domain]} call {callback}"
        for domain, callback in zip(domains, callbacks, strict=True)
    ]
    texts, code_of = np.unique(np.array(names, dtype=object), return_inverse=True)
    table["domain"] = _words(domain, _DOMAINS)
    table.insert(3, "function", pd.Series(pd.Categorical.from_codes(code_of[codes], pd.Index(texts))))
    return table


def _markers(
    columns: Mapping[str, NDArray[Any]], data: Mapping[str, NDArray[Any]], strings: Sequence[str]
) -> pd.DataFrame:
    """Make the table of NVTX ranges and marks (t0_ns == t1_ns); a range without begin or end in the windows is left
    out."""
    table = pd.DataFrame({key: values for key, values in columns.items() if key != "event"})
    table["name"] = _texts(columns["name"], strings)
    table["domain"] = _texts(columns["domain"], strings)
    event = columns["event"]
    ends = table.loc[(event & 4) != 0, ["id", "t_ns"]].rename(columns={"t_ns": "t1_ns"})
    ranges = table[(event & 2) != 0].merge(ends.drop_duplicates("id"), on="id")
    marks = table[(event & 1) != 0]
    found = pd.concat([ranges, marks.assign(t1_ns=marks["t_ns"])], ignore_index=True)
    extra = pd.DataFrame({**data}).drop_duplicates("id")
    found = found.merge(extra, on="id", how="left").rename(columns={"t_ns": "t0_ns"})
    found["category"] = found["category"].astype("Int64")
    return found[["t0_ns", "t1_ns", "name", "domain", "thread", "category", "payload"]]


_FORMAT = 1


class ActivityRecording(NamedTuple):
    """Tables and windows from a file, as returned by :func:`load_records`."""

    tables: dict[str, pd.DataFrame]
    windows: list[tuple[int, int]]


Recording = ActivityRecording  # its earlier name, which stays


def save_records(
    path: Path,
    parts: Sequence[Mapping[str, Any]],
    windows: Sequence[tuple[int, int]],
    functions: Mapping[tuple[int, int], str],
) -> None:
    """Write the decoder's results of each window; the file is whole or absent.

    Args:
        functions: names of host calls by domain and number, which only the recording library can resolve.

    Raises:
        OutputError: the file cannot be written.
    """
    columns, strings = join_columns(parts)
    about = {
        "format": _FORMAT,
        "strings": strings,
        "windows": [list(window) for window in windows],
        "functions": [[domain, number, name] for (domain, number), name in functions.items()],
    }
    arrays = {f"{table}/{name}": values for table, each in columns.items() for name, values in each.items()}
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)  # type: ignore[arg-type]


def load_records(path: str | Path) -> ActivityRecording:
    """Load tables and windows from a file that :meth:`ActivityInstrument.save` wrote.

    Raises:
        Error: the file is missing, damaged, or of a later format; the message names it.
    """
    try:
        columns: dict[str, dict[str, Any]] = {}
        with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as file:
            for key in file.files:
                table, _, name = key.partition("/")
                if name:
                    columns.setdefault(table, {})[name] = file[key]
            about = json.loads(str(file["about"]))
        if about["format"] != _FORMAT:
            raise Error(f"{path}: records of format {about['format']}; this version reads format {_FORMAT}")
        names = {(domain, number): function for domain, number, function in about["functions"]}
        tables = tables_of(columns, about["strings"], lambda domain, number: names.get((domain, number), ""))
        windows = [(int(begin), int(end)) for begin, end in about["windows"]]
        return ActivityRecording({name: tables[name] for name in TABLES}, windows)
    except Error:
        raise
    except Exception as error:  # zip, zlib, numpy, JSON and pandas each have their own for damaged bytes
        raise Error(f"{path}: not a file of activity records, or a damaged one: {error!r}") from error


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
