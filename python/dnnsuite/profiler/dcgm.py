# SPDX-License-Identifier: MIT
"""DCGM: names of its fields in this package, the lines of `dcgmi dmon`, and a running `dcgmi dmon` as a source of
readings.

Needs NVIDIA's host engine (`nv-hostengine`), which is neither started nor ended here: others may use it. Not run on a
GPU yet.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, NamedTuple

from ..errors import Unavailable
from .sampler import Reading


class Field(NamedTuple):
    """Field of DCGM: number, name in dcgmi's header, name (after DCGM_FI_) in the exporter's, and name in this
    package."""

    number: int
    short: str
    long: str
    name: str
    factor: float
    unit: str


_MIB = float(1 << 20)
FIELDS = [
    Field(100, "SMCLK", "DEV_SM_CLOCK", "sm_clock", 1e6, "Hz"),
    Field(101, "MMCLK", "DEV_MEM_CLOCK", "memory_clock", 1e6, "Hz"),
    Field(112, "DVCCTR", "DEV_CLOCK_THROTTLE_REASONS", "clock_reasons", 1, "bits"),
    Field(140, "MMTMP", "DEV_MEMORY_TEMP", "memory_temperature", 1, "°C"),
    Field(150, "TMPTR", "DEV_GPU_TEMP", "temperature", 1, "°C"),
    Field(155, "POWER", "DEV_POWER_USAGE", "power_average", 1, "W"),
    Field(156, "TOTEC", "DEV_TOTAL_ENERGY_CONSUMPTION", "energy", 1e-3, "J"),
    Field(157, "PWINST", "DEV_POWER_USAGE_INSTANT", "power", 1, "W"),
    Field(203, "GPUTL", "DEV_GPU_UTIL", "gpu_util", 1, "%"),
    Field(204, "MCUTL", "DEV_MEM_COPY_UTIL", "memory_util", 1, "%"),
    Field(206, "ENCUTL", "DEV_ENC_UTIL", "encoder_util", 1, "%"),
    Field(207, "DECUTL", "DEV_DEC_UTIL", "decoder_util", 1, "%"),
    Field(250, "FBTTL", "DEV_FB_TOTAL", "memory_total", _MIB, "bytes"),
    Field(251, "FBFRE", "DEV_FB_FREE", "memory_free", _MIB, "bytes"),
    Field(252, "FBUSD", "DEV_FB_USED", "memory_used", _MIB, "bytes"),
    Field(1001, "GRACT", "PROF_GR_ENGINE_ACTIVE", "gpm_graphics", 100, "%"),
    Field(1002, "SMACT", "PROF_SM_ACTIVE", "gpm_sm", 100, "%"),
    Field(1003, "SMOCC", "PROF_SM_OCCUPANCY", "gpm_occupancy", 100, "%"),
    Field(1004, "TENSO", "PROF_PIPE_TENSOR_ACTIVE", "gpm_tensor", 100, "%"),
    Field(1005, "DRAMA", "PROF_DRAM_ACTIVE", "gpm_dram", 100, "%"),
    Field(1006, "FP64A", "PROF_PIPE_FP64_ACTIVE", "gpm_fp64", 100, "%"),
    Field(1007, "FP32A", "PROF_PIPE_FP32_ACTIVE", "gpm_fp32", 100, "%"),
    Field(1008, "FP16A", "PROF_PIPE_FP16_ACTIVE", "gpm_fp16", 100, "%"),
    Field(1009, "PCITX", "PROF_PCIE_TX_BYTES", "gpm_pcie_tx", 1, "bytes/s"),
    Field(1010, "PCIRX", "PROF_PCIE_RX_BYTES", "gpm_pcie_rx", 1, "bytes/s"),
    Field(1011, "NVLTX", "PROF_NVLINK_TX_BYTES", "gpm_nvlink_tx", 1, "bytes/s"),
    Field(1012, "NVLRX", "PROF_NVLINK_RX_BYTES", "gpm_nvlink_rx", 1, "bytes/s"),
]
BY_NAME = {
    key: field for field in FIELDS for key in (str(field.number), field.short, field.long, f"DCGM_FI_{field.long}")
}
NOTHING = {"N/A", "n/a", "NA", "", "-", "NaN", "nan", "null"}
HEADER = re.compile(r"\s*#\s*Entity\b\s*(.*)$", re.IGNORECASE)
ENTITY = re.compile(r"\s*([A-Za-z][\w-]*)\s+(\d[\w/:.]*)((?:\s+\S+)*)\s*$")
_PIPES = tuple(field.number for field in FIELDS if 1001 <= field.number <= 1010)
_FIRST_SAMPLE_S = 5.0
_END_S = 2.0


def device_of(kind: str, number: str) -> str:
    """Return this package's name of an entity: `gpu0` for `GPU 0`."""
    return f"gpu{number}" if kind.upper() == "GPU" else f"{kind.lower()}{number}"


def column_of(name: str) -> tuple[str, float, str]:
    """Return (name, factor to the unit, unit) of a DCGM column; an unknown one keeps its name and has no unit."""
    field = BY_NAME.get(name) or BY_NAME.get(name.upper())
    return (field.name, field.factor, field.unit) if field else (name, 1.0, "")


class DcgmStream:
    """Running `dcgmi dmon` that watches the activity of SMs, pipes, memory and PCIe of every GPU.

    Args:
        interval_s: between samples, s; DCGM gives no more than ten in a second.
    """

    def __init__(self, interval_s: float = 0.1) -> None:
        self._interval_ms = max(100, round(interval_s * 1e3))
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._columns: list[tuple[str, float, str]] = []
        self._latest: dict[str, list[Reading]] = {}
        self._told: deque[str] = deque(maxlen=3)  # words of dcgmi that are no sample
        self._begun = threading.Event()

    def open(self) -> None:
        """Start it and wait for the first sample.

        Raises:
            Unavailable: there is no dcgmi, or it gives no sample; the message quotes it.
        """
        if shutil.which("dcgmi") is None:
            raise Unavailable("dcgmi not found", "PATH", "it comes with NVIDIA's datacenter-gpu-manager")
        fields = ",".join(map(str, _PIPES))
        argv = ["dcgmi", "dmon", "-e", fields, "-d", str(self._interval_ms)]
        self._process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._process.stdout is not None
        self._thread = threading.Thread(
            target=self._follow, args=(self._process.stdout,), name="dnnsuite-dcgm", daemon=True
        )
        self._thread.start()
        self._begun.wait(_FIRST_SAMPLE_S)
        if not self._latest:
            self.close()
            words = " ".join(self._told) or f"no sample within {_FIRST_SAMPLE_S:g} s"
            raise Unavailable(
                f"`dcgmi dmon` gives no samples: {words}",
                "",
                "it needs a running nv-hostengine and a GPU that DCGM profiles",
            )

    def _follow(self, lines: IO[str]) -> None:
        with suppress(ValueError, OSError):  # closed meanwhile
            for line in lines:
                self._take(line)
        self._begun.set()

    def _take(self, line: str) -> None:
        if header := HEADER.match(line):
            self._columns = [column_of(name) for name in header[1].split()]
            return
        entity = ENTITY.match(line)
        words = entity[3].split() if entity else []
        if entity is None or not self._columns or len(words) != len(self._columns):
            if line.strip():
                self._told.append(line.strip())
            return
        device = device_of(entity[1], entity[2])
        self._latest[device] = list(self._readings(device, words))
        self._begun.set()

    def _readings(self, device: str, words: list[str]) -> Iterator[Reading]:
        for word, (name, factor, unit) in zip(words, self._columns, strict=True):
            with suppress(ValueError):
                if word not in NOTHING:
                    yield Reading(device, name, float(word) * factor, unit)

    def read(self) -> Iterator[Reading]:
        """Yield the latest sample of each GPU; nothing once dcgmi has ended."""
        if self._process is not None and self._process.poll() is None:
            for readings in list(self._latest.values()):
                yield from readings

    def close(self) -> None:
        """End dcgmi. May be repeated."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._thread is not None:
            self._thread.join(_END_S)
        if process.stdout is not None:
            process.stdout.close()
