# SPDX-License-Identifier: MIT
"""Small jobs of a suite, for its tests; each misbehaves in one way, and most need no torch."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

from dnnsuite.jobs import Job, distributed, register


@register("toy-nap")
class Nap(Job):
    """Sleeps a little for each step; its loss falls."""

    description = "sleeps"
    unit = "naps"
    defaults: ClassVar[dict[str, Any]] = {"batch_size": 4, "repeat": 4, "number": 2, "workers": 3, "nap_s": 0.002}
    smoke: ClassVar[dict[str, Any]] = {"repeat": 2, "number": 1}

    @classmethod
    def precisions(cls, device: str) -> list[str]:
        return ["fp32", "bf16", "fp16"]

    def setup(self) -> None:
        self.steps = 0

    def step(self) -> None:
        began_ns = time.monotonic_ns()
        batch = self.batch()
        self.data_wait_ns += time.monotonic_ns() - began_ns
        self.loss = self.train(batch)

    def losses(self) -> list[float]:
        return [self.loss]

    def synchronize(self) -> None:
        pass

    def batch(self) -> Any:
        time.sleep(self.options["nap_s"])

    def train(self, batch: Any) -> float:
        self.steps += 1
        return 1.0 / self.steps

    def metrics(self) -> dict[str, float]:
        return {"steps": float(self.steps)}

    def provenance(self) -> dict[str, Any]:
        return {"data": "none"}


@register("toy-suite-nan")
class Nan(Nap):
    """The loss of the third batch is NaN."""

    def train(self, batch: Any) -> float:
        loss = super().train(batch)
        return loss if self.steps < 3 else loss * math.nan


@register("toy-suite-crash")
class Crash(Nap):
    """Fails in its second step; only copy 0 does, when there are others."""

    def train(self, batch: Any) -> float:
        loss = super().train(batch)
        if self.steps == 2 and os.environ["JOB_ID"] == "0":
            raise LookupError("no second step")
        return loss


@register("toy-oom")
class Hungry(Nap):
    """Takes all the memory that it can get."""

    def setup(self) -> None:
        super().setup()
        self.held = []
        while True:
            self.held.append(bytearray(64 << 20))


@register("toy-hang")
class Hang(Nap):
    """Never gets ready, and tells where it is."""

    def setup(self) -> None:
        super().setup()
        if "TOY_MARKER" in os.environ:
            Path(os.environ["TOY_MARKER"]).write_text(str(os.getpid()))
        time.sleep(1000)


@register("toy-hide")
class Hide(Nap):
    """Leaves a process behind, in a session of its own."""

    def setup(self) -> None:
        super().setup()
        hidden = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
        Path(os.environ["TOY_MARKER"]).write_text(str(hidden.pid))
        hidden.returncode = 0  # nobody waits for it


@register("toy-early")
class Early(Nap):
    """Ends with status 0 in the middle."""

    def train(self, batch: Any) -> float:
        os._exit(0)


@register("toy-short")
class Short(Nap):
    """Its data end."""

    def batch(self) -> Any:
        raise StopIteration


@register("toy-killed")
class Killed(Nap):
    """Is killed from outside."""

    def train(self, batch: Any) -> float:
        os.kill(os.getpid(), 9)
        return super().train(batch)


@register("toy-full")
class Full(Nap):
    """Finds no room on the disk when it has to write its results."""

    def metrics(self) -> dict[str, float]:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        return {}


@register("toy-all")
class Alone(Nap):
    """Has the machine."""

    scope = "all"


@register("toy-team")
class Team(Nap):
    """A line fitted by one process per device, which meet at each step."""

    scope, distributed = "all", True
    defaults: ClassVar[dict[str, Any]] = {"batch_size": 4, "repeat": 4, "number": 2}
    smoke: ClassVar[dict[str, Any]] = {}

    def setup(self) -> None:
        import torch

        self.place = distributed.place_of(self.scope)
        distributed.join(self.place, self.device)
        torch.manual_seed(self.config.seed)
        self.line = torch.nn.Linear(2, 1)
        self.model = distributed.parallel(self.line, self.place, self.device)
        self.optimizer = torch.optim.SGD(self.line.parameters(), 0.1)
        self.generator = torch.Generator().manual_seed(self.place.rank)

    @property
    def items_per_step(self) -> int:
        return self.config.batch_size * self.place.world_size

    def weights(self) -> list[Any]:
        return list(self.line.parameters())

    def batch(self) -> Any:
        import torch

        return torch.randn(self.config.batch_size, 2, generator=self.generator)

    def train(self, batch: Any) -> float:
        loss = (self.model(batch) - batch.sum(1, keepdim=True)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss)

    def metrics(self) -> dict[str, float]:
        """How far apart the processes' models are, and what the other one drew."""
        return {"processes": float(self.place.world_size), "weight": float(self.line.weight.detach().sum())}

    def provenance(self) -> dict[str, Any]:
        return {"rank": self.place.rank}

    def close(self) -> None:
        distributed.finish()


@register("toy-team-nan")
class TeamNan(Team):
    """The second process gets a NaN."""

    def train(self, batch: Any) -> float:
        loss = super().train(batch)
        return loss * math.nan if self.place.rank == 1 else loss


@register("toy-missed")
class Missed(Nap):
    """Has learned less than its target."""

    value: ClassVar[float] = 0.25

    def quality(self, preset: str, metrics: Any) -> dict[str, Any]:
        reached = self.value <= 0.1
        return {"metric": "error", "value": self.value, "better": "less", "target": 0.1, "reached": reached}


@register("toy-infinite")
class Infinite(Missed):
    """Is infinitely far from its target."""

    value = math.inf


@register("toy-no-number")
class NoNumber(Missed):
    """Its measure is NaN."""

    value = math.nan
