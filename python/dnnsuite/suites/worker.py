# SPDX-License-Identifier: MIT
"""One copy of a job: `python -m dnnsuite.suites.worker SPEC.json`.

Limits itself, sets the job up, waits for its siblings, measures, and writes into the directory that the spec names:
`samples.csv`, `report.json` and `result.json`. The exit status only repeats the latter (0 ok, 1 failed, 74 cannot
write). Its standard input is a socket to the runner: one byte tells that it is set up, one that all are.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import timing
from .._files import write_json, write_text
from .._runs.ending import attempt, leave, status_of
from .._runs.failures import classify
from .._runs.limits import die_with_parent, limit_memory, offer_to_oom_killer, peak_rss_bytes
from .._runs.plugins import import_plugins
from ..errors import Unavailable
from ._environment import hashes, process
from ._figures import figures, samples
from ._method import Observations, observe
from ._seed_format import RULE, eta_line, header, report_json, seed_report

if TYPE_CHECKING:
    from ..jobs import Training

__all__ = ["work"]

Spec = dict[str, Any]
Result = dict[str, Any]


def measure(spec: Spec, sibling_start: socket.socket | None) -> Result:
    """Set the job up, time it when all copies are ready, write its files."""
    from .. import jobs

    directory, leads = Path(spec["directory"]), _leads()
    import_plugins(spec["plugins"], spec["sys_path"])
    Job = jobs.get(spec["job"], jobs.Training)
    digests = hashes(Job, spec["arguments"])
    if leads:
        print(header(spec["arguments"]), flush=True)
    if spec["processes"] > 1:  # the share's variables count the threads of all of them
        import torch

        torch.set_num_threads(spec["config"]["threads"])
    with closing(Job(jobs.JobConfig.from_dict(spec["config"]))) as job:
        job.setup()
        setup_s = (timing.now_ns() - spec["launched_ns"]) * 1e-9  # interpreter and imports too
        _wait_for_siblings(sibling_start)
        seen = observe(job, spec["repeat"], spec["number"], _tell(spec["repeat"]) if leads else _silent)
        if not leads:  # what is measured is the same for all processes of a job: the first tells it
            return {}
        about = process(spec, job)
        metrics = {name: float(value) for name, value in job.metrics().items()}
        found = figures(seen, job.items_per_step)
        _write(directory, spec, job, seen, metrics, digests["source"])
        return {
            **found, "unit": job.unit, "metrics": metrics, "items_per_batch": job.items_per_step,
            "seed_unit": job.seed_unit._asdict(), "setup_s": setup_s, "provenance": job.provenance(),
            "environment": about, "hashes": digests, "window_s": sum(seen.seconds),
        }  # fmt: skip


def _tell(repeat: int) -> Any:
    return lambda index, seen: print(eta_line(index, repeat, seen), flush=True)


def _silent(index: int, seen: Observations) -> None:
    """Tells nothing."""


def _leads() -> bool:
    """Whether this is the process of its job that reports: the first of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def _wait_for_siblings(runner: socket.socket | None) -> None:
    """Return when every copy is set up: their windows start together."""
    if runner is None:  # started by hand
        return
    runner.sendall(b"r")
    if runner.recv(1) != b"g":
        raise InterruptedError("the runner ended before all copies were ready")


def _write(
    directory: Path, spec: Spec, job: Training, seen: Observations, metrics: dict[str, float], source: str
) -> None:
    write_text(directory / "samples.csv", samples(seen, job.items_per_step))
    seed_items = job.items_per_step / job.seed_unit.items
    report = seed_report(
        spec["name"], spec["arguments"], source[:10], seen, seed_items, metrics, spec["about"]
    )
    text = report_json(report)
    print(RULE, text, RULE, sep="\n", flush=True)
    write_text(directory / "report.json", report_json([report]) + "\n")


def _attempt(spec: Spec, runner: socket.socket | None) -> Result:
    """The result, whatever happens; only a full disk passes through."""
    result = attempt(lambda: {"failure": None, "message": "", **measure(spec, runner)}, _class_of)
    return (
        result
        if result["status"] == "ok"
        else {**result, "environment": {"peak_rss_bytes": peak_rss_bytes()}}
    )


def _tell_result(path: Path, result: Result) -> None:
    """Of several processes, the leading one tells that all went well, and whichever is first what went wrong.

    The others fail after it, because it is gone: that is not what went wrong.
    """
    if result["status"] == "ok":
        if _leads():
            write_json(path, result)
        return
    own = path.with_name(f"result-{os.getpid()}.json")
    write_json(own, result)
    with suppress(FileExistsError):
        os.link(own, path)
    own.unlink()


def _class_of(error: BaseException) -> str:
    if isinstance(error, (Unavailable, ModuleNotFoundError)):
        return "unavailable"
    return "data" if isinstance(error, StopIteration) else classify(error)


def _runner() -> socket.socket | None:
    """The socket that is standard input; the job's own input is empty. Only the leading process has it."""
    runner = None
    if _leads():
        with suppress(OSError):
            runner = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return runner


def work(spec: Spec) -> int:
    """Do what the spec says; returns the exit status."""
    # torchrun, which starts the processes of a distributed job, is their parent.
    die_with_parent(spec["parent_pid"] if spec["processes"] == 1 else os.getppid())
    offer_to_oom_killer()
    limit_memory(spec["memory_limit_bytes"])

    def told() -> Result:
        result = _attempt(spec, _runner())
        _tell_result(Path(spec["directory"]) / "result.json", result)
        return result

    return status_of(told)


if __name__ == "__main__":
    leave(work(json.loads(Path(sys.argv[1]).read_text())))
