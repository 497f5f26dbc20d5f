# SPDX-License-Identifier: MIT
"""Device, threads and precision of a comparison, the same for all of its variants."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from dnnsuite import host
from dnnsuite.errors import InvalidArgument, Unavailable

T = TypeVar("T")
_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
PRECISIONS = ("fp32", *_HALF)


def cpu_clock() -> float:
    """CPU seconds of this process, all threads."""
    return time.process_time()


def device_name(text: str) -> str:
    """`cpu`, or `cuda:0` for `cuda`. Raises InvalidArgument for what is neither."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", text):
        raise InvalidArgument(f"no device {text!r}: it is cpu, cuda or cuda:NUMBER")
    return "cuda:0" if text == "cuda" else text


@dataclass(frozen=True)
class Setting:
    """`device` as torch spells it, CPU `threads`, and `precision`: fp32, or what autocast has products in."""

    threads: int = 1
    device: str = "cpu"
    precision: str = "fp32"

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def type(self) -> str:
        return torch.device(self.device).type

    def enter(self) -> None:
        """Makes the device this process's own. Raises Unavailable where there is no such device."""
        if not self.on_gpu:
            return
        if not torch.cuda.is_available():
            why = "sees no GPU" if torch.version.cuda else "is built without CUDA"
            raise Unavailable(
                f"--device {self.device}: torch {torch.__version__} {why}",
                "torch.cuda",
                "`dnnsuite doctor` says what is missing; --device cpu needs none",
            )
        count, index = torch.cuda.device_count(), torch.device(self.device).index or 0
        if index >= count:
            raise Unavailable(
                f"--device {self.device}: there are {count} CUDA devices, counted from cuda:0", "torch.cuda"
            )
        torch.cuda.set_device(index)

    @property
    def clock(self) -> Callable[[], float]:
        """CPU time where one thread does all the work: a busy neighbour then does not decide. Else wall time."""
        return cpu_clock if self.threads == 1 and not self.on_gpu else time.perf_counter

    def wait(self) -> None:
        """Returns when the device has done all that it was given."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def put(self, tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return tuple(x.to(self.device) for x in tensors)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.type, dtype=_HALF[self.precision])

    def under_autocast(self, function: Callable[..., T]) -> Callable[..., T]:
        """`function` with its operators in this precision; itself in fp32."""
        if self.precision == "fp32":
            return function

        def call(*arguments: Any) -> T:
            with self.autocast():
                return function(*arguments)

        return call

    @property
    def scales_loss(self) -> bool:
        """Only fp16 can underflow; bf16 has fp32's range."""
        return self.precision == "fp16"

    def step(self, optimizer: torch.optim.Optimizer, loss: Callable[[], torch.Tensor]) -> Callable[[], None]:
        """A training step, with torch's scaling of the loss where the precision needs it."""

        def plain() -> None:
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()

        scaler = torch.amp.GradScaler(self.type, enabled=self.scales_loss)

        def scaled() -> None:
            optimizer.zero_grad()
            scaler.scale(loss()).backward()
            scaler.step(optimizer)
            scaler.update()

        return scaled if self.scales_loss else plain


def machine() -> str:
    """Describe this machine and the versions in a line of prose."""
    described, versions = host.describe(), host.versions()
    memory = described["memory_bytes"] / 2**30
    gpus = ", ".join(gpu["name"] for gpu in described["gpus"]) or "no GPU"
    cpus = len(described["cpus_allowed"])
    return (
        f"{cpus} CPU{'s' * (cpus > 1)}, {described['cpu_model']}, {memory:.0f} GiB, {gpus}; "
        f"torch {versions['torch']}, Python {versions['python']}, dnnsuite {versions['dnnsuite']}"
    )
