# SPDX-License-Identifier: MIT
"""Quantities of a GPU: name, unit, definition, and NVML call.

Those of GPM, Hopper's performance monitor, are the activity of SMs and their pipes between two samples.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from ..._lazy import numpy as np

_MHZ = 1_000_000
_POWER_INSTANT = 186  # NVML_FI_DEV_POWER_INSTANT


class Value(NamedTuple):
    """Value of a quantity; a quantity may have several."""

    name: str
    value: float
    unit: str


class Quantity(NamedTuple):
    """Group of values from one call."""

    call: str  # the function of NVML, for notes
    read: Callable[[Any, Any], Iterator[Value]]  # of (pynvml, handle)


def _one(call: str, name: str, unit: str, *arguments: str, factor: float = 1.0) -> Quantity:
    """A quantity that is the result of one call; `arguments` are constants of NVML by name."""

    def read(nvml: Any, handle: Any) -> Iterator[Value]:
        yield Value(name, getattr(nvml, call)(handle, *(getattr(nvml, each) for each in arguments)) * factor, unit)

    return Quantity(call, read)


def _utilization(nvml: Any, handle: Any) -> Iterator[Value]:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    yield Value("gpu_util", rates.gpu, "%")
    yield Value("memory_util", rates.memory, "%")


def _memory(nvml: Any, handle: Any) -> Iterator[Value]:
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        yield Value("memory_reserved", memory.reserved, "bytes")
    except (nvml.NVMLError_FunctionNotFound, AttributeError):  # a driver before 510, a pynvml before 11.510
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    yield Value("memory_used", memory.used, "bytes")
    yield Value("memory_total", memory.total, "bytes")


def _power(nvml: Any, handle: Any) -> Iterator[Value]:
    """Read instantaneous power; from Ampere on nvmlDeviceGetPowerUsage is a mean over a second."""
    with suppress(nvml.NVMLError_FunctionNotFound):  # a driver without fields
        (field,) = nvml.nvmlDeviceGetFieldValues(handle, [_POWER_INSTANT])
        if field.nvmlReturn == nvml.NVML_SUCCESS:
            yield Value("power", field.value.uiVal / 1e3, "W")
            return
    yield Value("power_average", nvml.nvmlDeviceGetPowerUsage(handle) / 1e3, "W")


def _clock(name: str, domain: str) -> Callable[[Any, Any], Iterator[Value]]:
    def read(nvml: Any, handle: Any) -> Iterator[Value]:
        kind = getattr(nvml, domain)
        yield Value(f"{name}_clock", nvml.nvmlDeviceGetClockInfo(handle, kind) * _MHZ, "Hz")
        yield Value(f"{name}_clock_max", nvml.nvmlDeviceGetMaxClockInfo(handle, kind) * _MHZ, "Hz")

    return read


def _reasons(nvml: Any, handle: Any) -> Iterator[Value]:
    try:
        bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except nvml.NVMLError_FunctionNotFound:  # its name before driver 535
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    yield Value("clock_reasons", bits, "bits")


def _processes(nvml: Any, handle: Any) -> Iterator[Value]:
    running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    others = [each for each in running if each.pid != os.getpid()]
    yield Value("processes", len(running), "1")
    yield Value("other_processes", len(others), "1")
    yield Value("other_memory", sum(each.usedGpuMemory or 0 for each in others), "bytes")


QUANTITIES = (
    Quantity("nvmlDeviceGetUtilizationRates", _utilization),
    Quantity("nvmlDeviceGetMemoryInfo", _memory),
    Quantity("nvmlDeviceGetPowerUsage", _power),
    _one("nvmlDeviceGetEnforcedPowerLimit", "power_limit", "W", factor=1e-3),
    _one("nvmlDeviceGetTotalEnergyConsumption", "energy", "J", factor=1e-3),
    Quantity("nvmlDeviceGetClockInfo(SM)", _clock("sm", "NVML_CLOCK_SM")),
    Quantity("nvmlDeviceGetClockInfo(MEM)", _clock("memory", "NVML_CLOCK_MEM")),
    Quantity("nvmlDeviceGetCurrentClocksEventReasons", _reasons),
    _one("nvmlDeviceGetTemperature", "temperature", "°C", "NVML_TEMPERATURE_GPU"),
    Quantity("nvmlDeviceGetComputeRunningProcesses", _processes),
)

DEFINITIONS = {
    "gpu_util": "share of the driver's last sample period in which some kernel was running, on however few SMs: "
    "not how much of the GPU was used",
    "memory_util": "share of that period in which device memory was being read or written: not its bandwidth",
    "memory_reserved": "device memory that the driver keeps for itself",
    "memory_used": "device memory allocated, by all processes",
    "memory_total": "device memory there is",
    "power": "board power at this instant",
    "power_average": "board power, mean of the last second (Ampere and newer; older GPUs: at this instant)",
    "power_limit": "board power above which the clocks are lowered",
    "energy": "energy since the driver was loaded, counted by the GPU; take differences",
    "energy_integrated": "energy since the window began, integrated from power samples: this GPU has no counter",
    "sm_clock": "clock of the SMs",
    "sm_clock_max": "the highest it may become",
    "memory_clock": "clock of the device memory",
    "memory_clock_max": "the highest it may become",
    "clock_reasons": "why the clocks are where they are, as bits; see decode_reasons",
    "temperature": "of the GPU's die",
    "processes": "processes that compute on the device",
    "other_processes": "processes that compute on the device, without this one",
    "other_memory": "device memory of the other processes",
}


def energy_j(t_ns: list[int], power_w: list[float]) -> list[float]:
    """Integrate energy since the first sample, J, by the trapezoidal rule, for a GPU without an energy counter."""
    seconds, watts = np.array(t_ns, float) / 1e9, np.array(power_w, float)
    between: list[float] = np.cumsum(np.diff(seconds) * (watts[1:] + watts[:-1]) / 2).tolist()
    return [0.0, *between][: len(t_ns)]


_MIB = 1 << 20

# Metric id (nvml.h, nvmlGpmMetricId_t): name, factor to the unit, unit, definition.
_METRICS = {
    1: ("gpm_graphics", 1, "%", "time in which any compute or graphics work was active"),
    2: ("gpm_sm", 1, "%", "SMs that had work, mean over time and SMs"),
    3: ("gpm_occupancy", 1, "%", "warps resident of those possible, mean over time and SMs"),
    4: ("gpm_integer", 1, "%", "time in which the SMs' integer pipes were active"),
    5: ("gpm_tensor", 1, "%", "time in which the SMs' tensor cores were active, all types"),
    6: ("gpm_tensor_fp64", 1, "%", "time in which the tensor cores worked in double precision"),
    7: ("gpm_tensor_half", 1, "%", "time in which the tensor cores worked in fp16, bf16, tf32 or fp8"),
    9: ("gpm_tensor_int", 1, "%", "time in which the tensor cores worked in integers"),
    10: ("gpm_dram", 1, "%", "bandwidth of device memory that was used, of the theoretical peak"),
    11: ("gpm_fp64", 1, "%", "time in which the SMs' fp64 pipes were active, without tensor cores"),
    12: ("gpm_fp32", 1, "%", "time in which the SMs' fp32 pipes were active, without tensor cores"),
    13: ("gpm_fp16", 1, "%", "time in which the SMs' fp16 pipes were active, without tensor cores"),
    20: ("gpm_pcie_tx", _MIB, "bytes/s", "PCIe traffic from the GPU"),
    21: ("gpm_pcie_rx", _MIB, "bytes/s", "PCIe traffic to the GPU"),
    60: ("gpm_nvlink_rx", _MIB, "bytes/s", "NVLink traffic to the GPU, all links"),
    61: ("gpm_nvlink_tx", _MIB, "bytes/s", "NVLink traffic from the GPU, all links"),
}
GPM_DEFINITIONS = {name: f"{text}; between this sample and the one before" for name, _, _, text in _METRICS.values()}


class Gpm:
    """Pairs of samples of one GPU, or of one MIG instance of it.

    Args:
        nvml: the module pynvml.
        handle: the GPU.
        instance: number of the MIG GPU instance; None for the whole GPU.

    Raises:
        pynvml.NVMLError: GPM is refused.
    """

    def __init__(self, nvml: Any, handle: Any, instance: int | None = None) -> None:
        self._nvml, self._handle, self._instance = nvml, handle, instance
        self._samples: list[Any] = []
        self.refused: dict[str, int] = {}  # name of a metric: NVML's status
        try:
            for _ in range(2):
                self._samples.append(nvml.nvmlGpmSampleAlloc())
            self._take(self._samples[0])
        except nvml.NVMLError:
            self.close()
            raise

    @staticmethod
    def supported(nvml: Any, handle: Any) -> bool:
        """Return True if the GPU has GPM: Hopper and newer."""
        return bool(nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)

    def read(self) -> Iterator[Value]:
        """Yield metrics of the time since the previous call."""
        nvml = self._nvml
        before, after = self._samples
        self._take(after)
        query = nvml.c_nvmlGpmMetricsGet_t()
        query.version = nvml.NVML_GPM_METRICS_GET_VERSION
        query.sample1, query.sample2 = before, after
        query.numMetrics = len(_METRICS)
        for i, number in enumerate(_METRICS):
            query.metrics[i].metricId = number
        nvml.nvmlGpmMetricsGet(query)
        self._samples = [after, before]
        for i, (name, factor, unit, _) in enumerate(_METRICS.values()):
            metric = query.metrics[i]
            if metric.nvmlReturn == nvml.NVML_SUCCESS and not math.isfinite(metric.value):
                continue  # the driver's first answers on an H100: a rate that nothing is known of yet
            if metric.nvmlReturn == nvml.NVML_SUCCESS:
                yield Value(name, metric.value * factor, unit)
            else:
                self.refused[name] = metric.nvmlReturn

    def _take(self, sample: Any) -> None:
        if self._instance is None:
            self._nvml.nvmlGpmSampleGet(self._handle, sample)
        else:
            self._nvml.nvmlGpmMigSampleGet(self._handle, ctypes.c_uint(self._instance), sample)

    def close(self) -> None:
        """Free the samples. Idempotent."""
        while self._samples:
            self._nvml.nvmlGpmSampleFree(self._samples.pop())
