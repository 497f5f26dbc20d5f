# SPDX-License-Identifier: MIT
"""The NVIDIA driver and what belongs to it. Every library is opened by name and may be absent."""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from ..errors import Unavailable
from ..profiler.counters.catalogue import LIBRARY, candidates, version_of
from ._fat_binary import architectures, runs_on
from ._finding import Finding, missing, ok

_NO_DRIVER = "a machine with an NVIDIA GPU and its driver; in a container, start it with the GPU (--gpus all)"
_CUDA_TORCH = "install a CUDA build of torch"
_TOOL_TIMEOUT_S = 10.0


def driver() -> Finding:
    """Open libcuda and ask for its version, without a context."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return missing(f"no NVIDIA driver: {error}", _NO_DRIVER)
    version, count = ctypes.c_int(), ctypes.c_int()
    status = library.cuInit(0) or library.cuDriverGetVersion(ctypes.byref(version))
    status = status or library.cuDeviceGetCount(ctypes.byref(count))
    if status:
        return missing(f"libcuda.so.1 exists, but cuInit returns error {status}", "nvidia-smi may say more")
    return ok(f"CUDA {version.value // 1000}.{version.value % 1000 // 10}, {count.value} GPU(s)")


def torch_cuda() -> Finding:
    import torch

    if torch.version.cuda is None:
        return missing(f"torch {torch.__version__} is built without CUDA", _CUDA_TORCH)
    if not torch.cuda.is_available():
        return missing(f"torch is built for CUDA {torch.version.cuda} and sees no GPU", _NO_DRIVER)
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return ok(f"CUDA {torch.version.cuda}: {', '.join(names)}")


def cuda_operators() -> Finding:
    """Check that the CUDA kernels were built, which is decided when the package is built, and for which GPUs."""
    import torch

    try:
        ops = importlib.import_module("dnnsuite.ops.library")
    except Unavailable as error:
        return missing(str(error), "reinstall with `pip install .` in the project's folder")
    library = ops.library_folder() / "libdnnsuite_cuda.so"
    if not library.is_file():
        return missing(f"not in this build: {ops.SLOWER}", ops.GET_OPERATORS)
    built = architectures(library)
    named = f"for {', '.join(built) or 'no architecture'}"
    if torch.version.cuda is None:
        return missing(f"built {named}; not loaded, because this torch has no CUDA", _CUDA_TORCH)
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        major, minor = torch.cuda.get_device_capability(number)
        if not runs_on(built, (major, minor)):
            return missing(f"built {named}, and cuda:{number} is sm_{major}{minor}", ops.GET_OPERATORS)
    return ok(f"built {named}, and loaded")


def nvml() -> Finding:
    """Temperature, power, clocks and memory of the GPUs."""
    try:
        pynvml = importlib.import_module("pynvml")
    except ImportError as error:
        return missing(str(error), "pip install nvidia-ml-py")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return missing(f"{type(error).__name__}: {error}", _NO_DRIVER)
    try:
        count = pynvml.nvmlDeviceGetCount()
        return ok(f"driver {pynvml.nvmlSystemGetDriverVersion()}, {count} GPU(s)")
    finally:
        pynvml.nvmlShutdown()


def cupti() -> Finding:
    """Kernel records and hardware counters. The library works, as far as listing metrics, without a GPU."""
    found: list[Path | str] = [*candidates(), LIBRARY]  # the last by the loader's path
    for path in found:
        version = version_of(path)  # in a process of its own: without a driver, CUPTI 13.2 ends the one that asks
        if version is not None:
            return ok(f"version {version}, {path}")
    return missing(
        f"no libcupti that answers (tried {len(found)} places)",
        "pip install 'dnnsuite[counters]', or the CUDA toolkit; from 13.2 on CUPTI needs NVIDIA's driver",
    )


def counters() -> Finding:
    """Check that the GPU's counters may be read: permission, MPS, MIG, and the device's own answer."""
    from ..profiler.counters import support

    against = [feature for feature in support() if not feature.available]
    if not against:
        return ok("over steps, over kernels and sampled over time")
    worst = against[-1]  # the device's own reason, where there is one
    return missing(f"{worst.name}: {worst.reason}", worst.remedy or "`dnnsuite metrics support` says more")


def nvtx() -> Finding:
    """Named ranges in a profiler's timeline: torch emits them, a tool has to listen."""
    import torch

    tools = [name for name in ("nsys", "ncu") if shutil.which(name)]
    if torch.version.cuda is None:
        return missing("this torch is built without NVTX", _CUDA_TORCH)
    if not tools:
        return missing("torch emits ranges; no tool to show them is installed", "install Nsight Systems")
    return ok(f"torch emits ranges; tools: {', '.join(tools)}")


def mps() -> Finding:
    """Look for the daemon that lets processes share a GPU at the same time: the mode `mps`."""
    from ..workflow import devices

    reason = devices.mps_unavailable("cuda")
    return missing(reason, _NO_DRIVER) if reason else ok("nvidia-cuda-mps-control is installed, and MIG is off")


def mig() -> Finding:
    """GPUs that can be split in hardware: the mode `mig`."""
    from ..workflow import devices

    reason = devices.mig_unavailable("cuda")
    return missing(reason, "an A100, H100 or later, as root") if reason else ok("this GPU can be split")


def nvcc() -> Finding:
    """Look for the compiler of the CUDA kernels; it is needed while the package is built, not after."""
    places = [os.environ.get("CUDACXX"), shutil.which("nvcc")]
    places += [f"{root}/bin/nvcc" for root in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if root]
    path = next((place for place in places if place and os.access(place, os.X_OK)), None)
    if path is None:
        return missing("no CUDA compiler", "install the CUDA toolkit, or set CUDACXX, to build the CUDA kernels")
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S, check=False)
    release = re.search(r"release ([\d.]+)", answer.stdout)
    return ok(f"{release[1] if release else 'of unknown version'}, {path}")
