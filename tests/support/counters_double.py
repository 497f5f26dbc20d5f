# SPDX-License-Identifier: MIT
"""A double of the instruments' own backend: it counts calls and returns scripted values. It says nothing of CUPTI."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dnnsuite.errors import Unavailable

Values = Callable[[int, str], float]


class DeviceDouble:
    def __init__(self, chip: str) -> None:
        self.chip = chip

    def support(self) -> list[dict[str, Any]]:
        good = dict.fromkeys(("architecture", "sli", "vgpu", "confidential_compute", "cmp", "wsl"), "supported")
        bad = {**good, "confidential_compute": "unsupported", "vgpu": "disabled"}
        return [
            {"interface": "ranges", "overall": "supported", "conditions": good},
            {"interface": "sampling", "overall": "unsupported", "conditions": bad},
        ]


class RangesDouble:
    """Behaves as RangeSession does: a group a step (or for its passes), the steps numbered over all windows."""

    def __init__(self, groups: list[list[str]], kernels: bool, images: list[dict[str, Any]]) -> None:
        self.groups, self.kernels, self.images = groups, kernels, images
        self.calls: list[str] = []
        self.steps_left_out = 0
        self.dropped = 0
        self.kernels_per_step = 3
        self._step = self._group = 0
        self._done: list[dict[str, Any]] = []
        self.fails_at: str | None = None

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.fails_at == name:
            raise RuntimeError(name)

    def start(self) -> None:
        self._called("start")

    def mark(self, name: str) -> None:
        self._called(f"mark {name}")

    def step(self) -> None:
        self._called("step")
        names = [str(self._step), f"{self._step}/backward", str(self._step + 1)]
        if self.kernels:
            names = [str(number) for number in range(self.kernels_per_step)]
        self.images.append({"names": names, "step": self._step})
        self._done.append(
            {
                "group": self._group,
                "first_step": self._step,
                "steps": 1,
                "dropped": self.dropped,
                "image": str(len(self.images) - 1).encode(),
            }
        )
        self._step += 1
        self._group = (self._group + 1) % len(self.groups)

    def stop(self) -> None:
        self._called("stop")

    def close(self) -> None:
        self._called("close")

    def take(self) -> list[dict[str, Any]]:
        done, self._done = self._done, []
        return done


class SampledDouble:
    def __init__(self, windows: list[dict[str, Any]]) -> None:
        self.windows, self.calls = windows, []  # type: tuple[list[dict[str, Any]], list[str]]

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def close(self) -> None:
        self.calls.append("close")

    def take(self) -> list[dict[str, Any]]:
        taken, self.windows = self.windows, []
        return taken


class BackendDouble:
    """Metric `m` of step `s` has the value `values(s, m)`; `refusal` is raised when the device is asked for."""

    def __init__(
        self,
        chip: str = "GH100",
        values: Values = lambda step, metric: float(step),
        windows: Sequence[dict[str, Any]] = (),
        refusal: Unavailable | None = None,
    ) -> None:
        self.chip, self.values, self.refusal = chip, values, refusal
        self.session: Any = None
        self.windows = list(windows)
        self.options: dict[str, Any] = {}
        self._images: list[dict[str, Any]] = []

    def device(self, ordinal: int) -> DeviceDouble:
        if self.refusal:
            raise self.refusal
        return DeviceDouble(self.chip)

    def ranges(self, device: Any, groups: Sequence[Sequence[str]], kernels: bool, max_ranges: int) -> RangesDouble:
        self.session = RangesDouble([list(group) for group in groups], kernels, self._images)
        self.options = {"max_ranges": max_ranges}
        return self.session

    def sampled(self, device: Any, metrics: Sequence[str], **options: Any) -> SampledDouble:
        self.options = {**options, "metrics": list(metrics)}
        self.session = SampledDouble(self.windows)
        return self.session

    def evaluate(self, chip: str, image: bytes, metrics: Sequence[str], collection: str = "ranges") -> dict[str, Any]:
        found = self._images[int(image)]
        row = [self.values(found["step"], metric) for metric in metrics]
        return {"names": found["names"], "values": [list(row) for _ in found["names"]]}
