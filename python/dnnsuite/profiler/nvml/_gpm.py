# SPDX-License-Identifier: MIT
"""GPM, Hopper's performance monitor: activity of SMs and their pipes between two samples."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from typing import Any

from ._quantities import Value

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
