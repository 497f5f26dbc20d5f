# SPDX-License-Identifier: MIT
"""GPUs to watch, whole or MIG slices, and the queries that each refuses."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ...errors import InvalidArgument
from ..sampler import Reading
from ._quantities import QUANTITIES, Gpm, Value


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
        numbers = visible(count, setting, lambda i: _uuid(nvml, i))
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


def _uuid(nvml: Any, number: int) -> str:
    uuid = nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(number))
    return uuid.decode() if isinstance(uuid, bytes) else uuid


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
