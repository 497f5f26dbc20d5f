# SPDX-License-Identifier: MIT
"""One worker process: `python -m dnnsuite.workflow.worker SPEC.json`.

Limits itself, sets the job up, waits for its siblings, runs, writes its files into the directory the spec
names and ends. What it found is in `result.json`; the exit status only repeats it (0 ok, 1 failed, 74 cannot
write).
"""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from .._files import write_json, write_text
from .._runs.ending import attempt, leave, status_of
from .._runs.failures import NotFinite, classify
from .._runs.limits import die_with_parent, limit_memory, offer_to_oom_killer, peak_rss_bytes
from .._runs.plugins import import_plugins
from .._runs.rates import Steps
from .protocol import GO_FD, READY_FD

Spec = dict[str, Any]
Result = dict[str, Any]


def measure(spec: Spec) -> Result:
    """Run epochs × iterations, timed, and write `samples.csv` and `timing.csv`."""
    from .. import timing
    from .clocks import clock_for

    epochs, iters = spec["epochs"], spec["iters_per_epoch"]
    directory = Path(spec["directory"])
    with closing(_make_job(spec)) as job:
        started_ns = timing.now_ns()
        job.setup()
        setup_s = (timing.now_ns() - started_ns) * 1e-9
        clock = clock_for(spec["config"]["device"], epochs, iters)
        _wait_for_siblings()
        edges_ns = []
        for epoch in range(epochs):
            epoch_start_ns = timing.now_ns()
            clock.begin_epoch()
            for _ in range(iters):
                clock.begin_step()
                job.step()
                clock.end_step(job.items_per_step)
            job.synchronize()
            clock.end_epoch()
            edges_ns.append((epoch_start_ns, timing.now_ns()))
            job.end_epoch()
            losses = _finite_losses(job, epoch)
        steps = clock.steps()
        _write_samples(directory / "samples.csv", steps)
        _write_timing(directory / "timing.csv", edges_ns, iters * job.items_per_step, timing.now_ns())
        return {"losses": losses, "items_per_step": job.items_per_step, "setup_s": setup_s,
                "asynchronous": clock.asynchronous, "provenance": job.provenance()}  # fmt: skip


def dry_run(spec: Spec) -> Result:
    """Run a few iterations at full size: only that it works matters."""
    with closing(_make_job(spec)) as job:
        job.setup()
        _wait_for_siblings()
        for _ in range(spec["epochs"]):
            for _ in range(spec["iters_per_epoch"]):
                job.step()
            job.synchronize()
            job.end_epoch()
        return {}


def equality(spec: Spec) -> Result:
    """Ask the job whether its fused array computes what separate models do."""
    Job, config = _job_and_config(spec)
    _wait_for_siblings()
    return {"equality": Job.check_equality(config, steps=spec["steps"])}


def profile(spec: Spec) -> Result:
    """Observe the job instead of rating it."""
    from ..profiling.job import observe

    job = _make_job(spec)
    _wait_for_siblings()
    return observe(spec, job)


KINDS: dict[str, Callable[[Spec], Result]] = {
    "run": measure,
    "dry-run": dry_run,
    "equality": equality,
    "profile": profile,
}


def _job_and_config(spec: Spec) -> tuple[Any, Any]:
    from .. import jobs

    import_plugins(spec["plugins"], spec["sys_path"])
    fraction = spec.get("cuda_memory_fraction")
    if fraction is not None and spec["config"]["device"].startswith("cuda"):
        import torch

        torch.cuda.set_per_process_memory_fraction(fraction)
    return jobs.get(spec["job"]), jobs.JobConfig.from_dict(spec["config"])


def _make_job(spec: Spec) -> Any:
    Job, config = _job_and_config(spec)
    return Job(config)


def _wait_for_siblings() -> None:
    """Tell the parent that this worker is set up; return when all are: timed windows start together."""
    if READY_FD not in os.environ:  # started by hand
        return
    os.write(int(os.environ[READY_FD]), b"r")
    if os.read(int(os.environ[GO_FD]), 1) != b"g":
        raise InterruptedError("the parent ended before all workers were ready")


def _finite_losses(job: Any, epoch: int) -> list[float]:
    losses = [float(loss) for loss in job.losses()]
    bad = [i for i, loss in enumerate(losses) if not math.isfinite(loss)]
    if bad:
        raise NotFinite(f"loss of model {bad[0]} is {losses[bad[0]]} after epoch {epoch}")
    return losses


def _write_samples(path: Path, steps: Steps) -> None:
    columns = zip(steps.epochs, steps.starts_ns, steps.stops_ns, steps.items, strict=True)
    rows = [f"{i},{e},{a},{b},{n}" for i, (e, a, b, n) in enumerate(columns)]
    write_text(path, "\n".join(["i,epoch,t_start_ns,t_stop_ns,items", *rows, ""]))


def _write_timing(path: Path, edges_ns: list[tuple[int, int]], items: int, now_ns: int) -> None:
    """HFTA's file: one line per epoch, wall-clock seconds since 1970, samples counted over all models."""
    wall_minus_clock_s = time.time() - now_ns * 1e-9
    edges_s = [[edge * 1e-9 + wall_minus_clock_s for edge in edges] for edges in edges_ns]
    rows = [f"{epoch},{epoch},{start:.6f},{stop:.6f},{items}" for epoch, (start, stop) in enumerate(edges_s)]
    write_text(path, "\n".join([",epoch,epoch_start,epoch_stop,num_samples", *rows, ""]))


def _about_process(spec: Spec) -> Result:
    torch = sys.modules.get("torch")
    about: Result = {
        "pid": os.getpid(),
        "python": platform.python_version(),
        "torch": str(torch.__version__) if torch else None,
        "torch_threads": torch.get_num_threads() if torch else None,
        "cpus_allowed": sorted(os.sched_getaffinity(0)),
        "peak_rss_bytes": peak_rss_bytes(),
        "memory_limit_bytes": spec["memory_limit_bytes"],
    }
    if torch and torch.cuda.is_available() and torch.cuda.is_initialized():
        about["peak_cuda_bytes"] = torch.cuda.max_memory_allocated()
        about["tf32"] = torch.backends.cuda.matmul.allow_tf32
        about["cudnn_benchmark"] = torch.backends.cudnn.benchmark
    return about


def _attempt(spec: Spec) -> Result:
    """The result, whatever happens; only a full disk passes through."""
    result = attempt(lambda: {**KINDS[spec["kind"]](spec), "process": _about_process(spec)}, classify)
    return result if result["status"] == "ok" else {**result, "process": _about_process(spec)}


def work(spec: Spec) -> int:
    """Do what the spec says; returns the exit status."""
    die_with_parent(spec["parent_pid"])
    offer_to_oom_killer()
    limit_memory(spec["memory_limit_bytes"])

    def written() -> Result:
        result = _attempt(spec)
        write_json(Path(spec["directory"]) / "result.json", result)
        return result

    return status_of(written)


if __name__ == "__main__":
    leave(work(json.loads(Path(sys.argv[1]).read_text())))
