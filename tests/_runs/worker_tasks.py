# SPDX-License-Identifier: MIT
"""Tasks of workers, for the tests of the engine; each behaves in one way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

from dnnsuite._runs.spec import WorkerSpec
from dnnsuite._runs.worker import Siblings
from dnnsuite.errors import Unavailable


def fine(spec: WorkerSpec, siblings: Siblings) -> dict[str, Any]:
    time.sleep(spec.details.get("setup_s", 0.0))
    ready_ns = time.monotonic_ns()
    siblings.wait()
    began_ns = time.monotonic_ns()
    time.sleep(spec.details.get("seconds", 0.0))
    told = {"ready_ns": ready_ns, "began_ns": began_ns, "ended_ns": time.monotonic_ns()}
    return {**told, "place": os.environ.get("RANK")}


def slow(spec: WorkerSpec, siblings: Siblings) -> dict[str, Any]:
    siblings.wait()
    (spec.folder / "marker").write_text(str(os.getpid()))
    time.sleep(600)
    return {}


def stubborn(spec: WorkerSpec, siblings: Siblings) -> dict[str, Any]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return slow(spec, siblings)


def crashes(spec: WorkerSpec, siblings: Siblings) -> dict[str, Any]:
    siblings.wait()
    raise LookupError("no second step")


def crashes_at_once(spec: WorkerSpec, siblings: Siblings) -> dict[str, Any]:
    raise Unavailable("it needs a harp", "", "buy one")


def ends_early(spec: WorkerSpec, siblings: Siblings) -> dict[str, Any]:
    siblings.wait()
    os._exit(0)


def leaves_a_child(spec: WorkerSpec, siblings: Siblings) -> dict[str, Any]:
    siblings.wait()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    return {"child": child.pid}


def counts(spec: WorkerSpec, siblings: Siblings, sign: int = 1) -> dict[str, Any]:
    total = 0
    for order in siblings.orders():
        total += sign * order["add"]
        siblings.answer({"total": total, "cpu_s": time.process_time()})
    return {"total": total}


def counts_down(spec: WorkerSpec, siblings: Siblings) -> dict[str, Any]:
    return counts(spec, siblings, -1)


def fails_in_its_turn(spec: WorkerSpec, siblings: Siblings) -> dict[str, Any]:
    for _ in siblings.orders():
        if spec.details["index"] == 1:
            raise LookupError("no second step")
        siblings.answer({})
    return {}


def leaves(spec: WorkerSpec, siblings: Siblings) -> dict[str, Any]:
    for _ in siblings.orders():
        os._exit(0)
    return {}


def sleeps_in_its_turn(spec: WorkerSpec, siblings: Siblings) -> dict[str, Any]:
    for _ in siblings.orders():
        time.sleep(600)
    return {}
