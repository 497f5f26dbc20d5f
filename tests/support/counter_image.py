# SPDX-License-Identifier: MIT
"""A counter-data image without data, made by CUPTI's own libraries: needs no GPU."""

import ctypes
from pathlib import Path

from dnnsuite import _C


class _Prefix(ctypes.Structure):  # NVPW_CUDA_CounterDataBuilder_Create_Params and ..._GetCounterDataPrefix_Params
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("private", ctypes.c_void_p),
        ("a", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("c", ctypes.c_void_p),
        ("d", ctypes.c_size_t),
    )


class _Options(ctypes.Structure):  # CUpti_Profiler_CounterDataImageOptions
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("private", ctypes.c_void_p),
        ("prefix", ctypes.c_void_p),
        ("prefix_size", ctypes.c_size_t),
        ("ranges", ctypes.c_uint32),
        ("nodes", ctypes.c_uint32),
        ("name_length", ctypes.c_uint32),
    )


class _Image(ctypes.Structure):  # CUpti_Profiler_CounterDataImage_CalculateSize_Params and ..._Initialize_Params
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("private", ctypes.c_void_p),
        ("options_size", ctypes.c_size_t),
        ("options", ctypes.c_void_p),
        ("image_size", ctypes.c_size_t),
        ("image", ctypes.c_void_p),
    )


def _call(function, params, size: int = 0) -> None:
    params.size = size or ctypes.sizeof(params)
    assert function(ctypes.byref(params)) == 0


def _prefix(chip: str, folder: Path) -> ctypes.Array:
    host = ctypes.CDLL(str(folder / "libnvperf_host.so"))
    create = _Prefix(a=ctypes.cast(ctypes.c_char_p(chip.encode()), ctypes.c_void_p))
    _call(host.NVPW_CUDA_CounterDataBuilder_Create, create, 40)
    ask = _Prefix(a=create.c)
    _call(host.NVPW_CounterDataBuilder_GetCounterDataPrefix, ask)
    prefix = (ctypes.c_uint64 * ((ask.d + 7) // 8))()
    get = _Prefix(a=create.c, b=ask.d, c=ctypes.addressof(prefix))
    _call(host.NVPW_CounterDataBuilder_GetCounterDataPrefix, get)
    return prefix


def empty_image(chip: str, ranges: int) -> bytes:
    """What CUPTI would fill: room for `ranges`, none of them there."""
    _C.CounterHost(chip)  # before it, the functions below answer that nothing is initialised
    path = Path(_C.library_path("libcupti.so.13"))
    cupti, prefix = ctypes.CDLL(str(path)), _prefix(chip, path.parent)
    options = _Options(
        size=44,
        prefix=ctypes.addressof(prefix),
        prefix_size=ctypes.sizeof(prefix),
        ranges=ranges,
        nodes=ranges,
        name_length=64,
    )
    about = _Image(options_size=44, options=ctypes.addressof(options))
    _call(cupti.cuptiProfilerCounterDataImageCalculateSize, about, 40)
    image = (ctypes.c_uint64 * ((about.image_size + 7) // 8))()
    about.image = ctypes.addressof(image)
    _call(cupti.cuptiProfilerCounterDataImageInitialize, about)
    return bytes(image)[: about.image_size]
