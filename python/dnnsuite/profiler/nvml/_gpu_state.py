# SPDX-License-Identifier: MIT
"""Instrument that queries NVIDIA's driver at a fixed interval: the GPUs to watch, whole or MIG slices, the queries that
each refuses, and the reasons that it gives for slow clocks.
"""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..._lazy import pandas as pd
from ...errors import InvalidArgument, Unavailable
from ..instrument import Instrument
from ..sampler import Reading, Row, Sampler, samples_table
from ._quantities import DEFINITIONS, GPM_DEFINITIONS, QUANTITIES, Gpm, Value, energy_j


class NvmlDevice:
    """Handle of NVML: a GPU (`gpu0`) or a MIG slice (`gpu0/mig1`). A query that it refuses is made once."""

    def __init__(self, nvml: Any, name: str, handle: Any, gpm: Callable[[], Gpm] | None = None) -> None:
        self.name = name
        self.lost = False
        self.refused: dict[str, str] = {}  # call of NVML: its answer
        self._nvml, self._handle = nvml, handle
        self._quantities = list(QUANTITIES)
        self._gpm: Gpm | None = None
        if gpm is not None:
            for made in self._attempt("GPM", lambda: [gpm()]) or []:
                self._gpm = made

    def read(self) -> Iterator[Reading]:
        """Yield all values of the device. Raises no error of NVML: a refusal becomes a note."""
        for quantity in list(self._quantities):
            if self.lost:
                return
            values = self._attempt(quantity.call, quantity.read, self._nvml, self._handle)
            if values is None:
                self._quantities.remove(quantity)
            yield from self._readings(values or [])
        gpm = self._gpm
        if gpm is not None and not self.lost:
            values = self._attempt("GPM", gpm.read)
            if values is None:
                self.close()
            yield from self._readings(values or [])

    def _readings(self, values: Iterable[Value]) -> Iterator[Reading]:
        for value in values:
            yield Reading(self.name, value.name, float(value.value), value.unit)

    def _attempt(self, call: str, function: Callable[..., Iterable[Any]], *arguments: Any) -> list[Any] | None:
        """Call `function`; None, and a note, if NVML refuses it."""
        nvml = self._nvml
        try:
            return list(function(*arguments))
        except nvml.NVMLError as error:
            self.refused.setdefault(call, str(error))
            gone = (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED, nvml.NVML_ERROR_UNINITIALIZED)
            self.lost = self.lost or error.value in gone
            return None

    def notes(self) -> list[str]:
        """List NVML's refusals, a sentence each."""
        answers: dict[str, list[str]] = {}
        for call, answer in self.refused.items():
            answers.setdefault(answer, []).append(call)
        found = [f"{self.name}: {answer}: {', '.join(calls)}" for answer, calls in answers.items()]
        if self._gpm is not None and self._gpm.refused:
            found.append(f"{self.name}: GPM gives no {', '.join(sorted(self._gpm.refused))}")
        if self.lost:
            found.append(f"{self.name}: the GPU was lost, its samples end there")
        return found

    def close(self) -> None:
        """Free GPM's samples. Idempotent."""
        gpm, self._gpm = self._gpm, None
        try:
            if gpm is not None:
                gpm.close()
        except self._nvml.NVMLError as error:
            self.refused.setdefault("nvmlGpmSampleFree", str(error))


def visible(count: int, setting: str | None, uuid_of: Callable[[int], str]) -> list[int]:
    """List NVML's numbers of the GPUs that `CUDA_VISIBLE_DEVICES` leaves to this process.

    Args:
        count: GPUs of the machine.
        setting: the variable's value; None when it is not set.
        uuid_of: UUID of a GPU by its number.

    As in CUDA, entries after the first invalid one are ignored.
    """
    if setting is None:
        return list(range(count))
    found: list[int] = []
    for word in (word.strip() for word in setting.split(",")):
        if word.startswith("GPU-"):
            matching = [i for i in range(count) if uuid_of(i).startswith(word)]
        else:
            matching = [int(word)] if word.isdigit() and int(word) < count else []
        if not matching:
            break
        found += [i for i in matching if i not in found]
    return found


def find_devices(nvml: Any, numbers: Sequence[int] | None) -> list[NvmlDevice]:
    """Find the devices to watch: those of `numbers`, or those that this process can see; slices if MIG is on.

    Raises:
        InvalidArgument: there is no GPU of such a number.
    """
    count = nvml.nvmlDeviceGetCount()
    if numbers is None:
        setting = os.environ.get("CUDA_VISIBLE_DEVICES")
        if setting and setting.startswith("MIG-"):
            return [_slice_by_uuid(nvml, uuid.strip()) for uuid in setting.split(",")]

        def uuid_of(number: int) -> str:
            uuid: str | bytes = nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(number))
            return uuid.decode() if isinstance(uuid, bytes) else uuid

        numbers = visible(count, setting, uuid_of)
    for number in numbers:
        if not 0 <= number < count:
            raise InvalidArgument(f"there is no GPU {number}; this machine has {count}, counted from 0")
    devices: list[NvmlDevice] = []
    try:
        for number in numbers:
            devices += _devices_of(nvml, number)
    except nvml.NVMLError:
        for device in devices:
            device.close()
        raise
    return devices


def _devices_of(nvml: Any, number: int) -> Iterator[NvmlDevice]:
    handle = nvml.nvmlDeviceGetHandleByIndex(number)
    yield NvmlDevice(nvml, f"gpu{number}", handle, _gpm(nvml, handle, None))
    try:
        if nvml.nvmlDeviceGetMigMode(handle)[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return
        slots = nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except nvml.NVMLError:  # most GPUs cannot be sliced
        return
    for slot in range(slots):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot)
            instance = nvml.nvmlDeviceGetGpuInstanceId(part)
        except nvml.NVMLError:  # an empty slot
            continue
        yield NvmlDevice(nvml, f"gpu{number}/mig{slot}", part, _gpm(nvml, handle, instance))


def _slice_by_uuid(nvml: Any, uuid: str) -> NvmlDevice:
    part = nvml.nvmlDeviceGetHandleByUUID(uuid.encode())
    parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part)
    number = nvml.nvmlDeviceGetIndex(parent)
    instance = nvml.nvmlDeviceGetGpuInstanceId(part)
    return NvmlDevice(nvml, f"gpu{number}/mig-instance{instance}", part, _gpm(nvml, parent, instance))


def _gpm(nvml: Any, handle: Any, instance: int | None) -> Callable[[], Gpm] | None:
    try:
        if not Gpm.supported(nvml, handle):
            return None
    except nvml.NVMLError:  # a driver that is older than GPM, or a GPU
        return None
    return lambda: Gpm(nvml, handle, instance)


_ROOT_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel


class NvmlInstrument(Instrument):
    """Sampler of GPUs in a thread: utilisation, memory, power, energy, clocks, temperature, processes and GPM.

    The table `samples` is long, with the columns t_ns, source, device, name, value and unit.

    Args:
        interval_s: time between samples, s. GPM needs at least 0.1.
        devices: numbers of GPUs in the order of `nvidia-smi`; by default those that this process can see.
    """

    name = "nvml"

    def __init__(self, interval_s: float = 0.1, devices: Sequence[int] | None = None) -> None:
        self._sampler = Sampler("nvml", self.read, interval_s)
        self._numbers = devices
        self._devices: list[NvmlDevice] = []
        self._nvml: Any = None
        self._owner = 0

    def open(self) -> None:
        """Open the GPUs. Raises Unavailable without a driver, and InvalidArgument for a GPU that does not exist."""
        if self._nvml is not None:
            return
        try:
            import pynvml as nvml  # type: ignore[import-untyped]
        except ImportError as error:
            raise Unavailable(str(error), "this Python's packages", "pip install nvidia-ml-py") from error
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise Unavailable(
                f"NVML does not answer: {error}",
                "libnvidia-ml.so.1, by the loader's path",
                "install NVIDIA's driver; in a container, start it with the GPU (--gpus all)",
            ) from None
        try:
            self._devices = find_devices(nvml, self._numbers)
            if not self._devices:
                raise Unavailable("no GPU is visible", "NVML", "check nvidia-smi and CUDA_VISIBLE_DEVICES")
        except nvml.NVMLError as error:
            nvml.nvmlShutdown()
            raise Unavailable(f"a GPU does not answer: {error}", "NVML", "nvidia-smi may say more") from None
        except Exception:
            nvml.nvmlShutdown()
            raise
        self._nvml, self._owner = nvml, os.getpid()

    def start(self) -> None:
        self._sampler.start()

    def stop(self) -> None:
        self._sampler.stop()

    def read(self) -> Iterator[Reading]:
        """Yield the current readings of every open GPU; a refusal becomes a note."""
        for device in self._devices:
            yield from device.read()

    def tables(self) -> dict[str, pd.DataFrame]:
        rows = self._sampler.rows
        integrated = list(_integrated(rows))
        return {"samples": samples_table("nvml", rows + integrated, {**DEFINITIONS, **GPM_DEFINITIONS})}

    def notes(self) -> list[str]:
        found = self._sampler.notes()
        for device in self._devices:
            found += device.notes()
        rows = self._sampler.rows
        found += _numbering(self._numbers is None)
        found += _slowed(rows)
        found += _contended(rows)
        if integrated := sorted({row[1] for row in _integrated(rows)}):
            found.append(f"{', '.join(integrated)}: energy is integrated from power: no counter")
        return found

    def close(self) -> None:
        self._sampler.stop()
        nvml, self._nvml = self._nvml, None
        if nvml is None or self._owner != os.getpid():  # a fork: the handles are those of the process that opened it
            return
        for device in self._devices:
            device.close()
        try:
            nvml.nvmlShutdown()
        except nvml.NVMLError:  # the driver is gone: nothing to give back
            return


def _integrated(rows: list[Row]) -> Iterator[Row]:
    """Yield rows of energy for devices that report power but no energy."""
    counted = _by_device(rows, "energy")
    for device, found in _by_device(rows, "power", "power_average").items():
        if device not in counted:
            times, watts = map(list, zip(*found, strict=True))
            for t_ns, energy in zip(times, energy_j(times, watts), strict=True):
                yield (t_ns, device, "energy_integrated", energy, "J")


def _by_device(rows: list[Row], *names: str) -> dict[str, list[tuple[int, float]]]:
    """Collect (time, value) of the quantities of these names, by device."""
    found: dict[str, list[tuple[int, float]]] = {}
    for t_ns, device, name, value, _ in rows:
        if name in names:
            found.setdefault(device, []).append((t_ns, value))
    return found


def _numbering(by_environment: bool) -> Iterator[str]:
    """Yield a note on numbering: CUDA's GPU 0 is the fastest unless CUDA_DEVICE_ORDER asks for NVML's order."""
    setting = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if by_environment and setting[:1].isdigit() and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        yield (
            f"CUDA_VISIBLE_DEVICES={setting} is read in nvidia-smi's order; CUDA's may differ between unlike GPUs: "
            "set CUDA_DEVICE_ORDER=PCI_BUS_ID"
        )


def _slowed(rows: list[Row]) -> Iterator[str]:
    for device, found in _by_device(rows, "clock_reasons").items():
        slowed = [int(bits) & SLOWED for _, bits in found if int(bits) & SLOWED]
        if slowed:
            every = decode_reasons(functools.reduce(operator.or_, slowed))
            share = 100 * len(slowed) / len(found)
            yield f"{device}: clocks were limited in {share:.0f} % of samples: {', '.join(every)}"


def _contended(rows: list[Row]) -> Iterator[str]:
    most = {device: max(count for _, count in found) for device, found in _by_device(rows, "other_processes").items()}
    shared = {device: count for device, count in most.items() if count}
    try:
        in_container = os.readlink("/proc/self/ns/pid") != _ROOT_PID_NAMESPACE
    except OSError:
        in_container = True
    if shared and in_container:
        yield (
            "the driver counts processes outside this container, so this one may be among the others: "
            + ", ".join(f"{device}: up to {count:g}" for device, count in shared.items())
        )
        return
    for device, count in shared.items():
        yield f"{device}: contention: up to {count:g} other processes compute on it"


# Bits of nvmlDeviceGetCurrentClocksEventReasons (NVML API reference, nvmlClocksEventReasons).
REASONS = {
    0x1: "idle",
    0x2: "application clocks set",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal slowdown by the driver",
    0x40: "thermal slowdown by the hardware",
    0x80: "power brake",
    0x100: "display clocks set",
    0x200: "board limit",
    0x400: "reliability limit",
}
SLOWED = 0x4 | 0x8 | 0x20 | 0x40 | 0x80 | 0x200 | 0x400  # the GPU would run faster if it could


def decode_reasons(bits: int) -> list[str]:
    """Return the reasons in words, lowest bit first. Undocumented bits are named by their value."""
    known = [word for bit, word in REASONS.items() if bits & bit]
    rest = bits & ~sum(REASONS)
    unknown = [f"unknown reason {1 << i:#x}" for i in range(rest.bit_length()) if rest >> i & 1]
    return known + unknown
