# SPDX-License-Identifier: MIT
"""Interface between the instruments and a GPU's counters: CUPTI, or a double in tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..._C import CounterDevice, RangeCounters, SampledCounters
from ...host import register_vendor_folders
from .catalogue import host


class Backend(Protocol):
    """Counter interface of a GPU, as the instruments use it."""

    def device(self, ordinal: int) -> Any:
        """Open the GPU, which has a `chip`. Raises Unavailable without a GPU, or where its counters are unavailable."""

    def ranges(self, device: Any, groups: Sequence[Sequence[str]], kernels: bool, max_ranges: int) -> Any:
        """Open a session that counts: start, mark, step, stop, close, take, passes, steps_left_out."""

    def sampled(self, device: Any, metrics: Sequence[str], **options: Any) -> Any:
        """Open a session that samples: start, stop, close, take."""

    def evaluate(self, chip: str, image: bytes, metrics: Sequence[str], collection: str = "ranges") -> dict[str, Any]:
        """Return names and values [ranges or samples][metrics] of a counter-data image."""


class CuptiBackend:
    """Backend of CUPTI."""

    def device(self, ordinal: int) -> CounterDevice:
        register_vendor_folders()
        return CounterDevice(ordinal)

    def ranges(self, device: Any, groups: Sequence[Sequence[str]], kernels: bool, max_ranges: int) -> RangeCounters:
        return RangeCounters(device, [list(group) for group in groups], kernels, max_ranges)

    def sampled(self, device: Any, metrics: Sequence[str], **options: Any) -> SampledCounters:
        return SampledCounters(device, list(metrics), **options)

    def evaluate(self, chip: str, image: bytes, metrics: Sequence[str], collection: str = "ranges") -> dict[str, Any]:
        return host(chip, collection).evaluate(image, list(metrics))


CUPTI = CuptiBackend()
