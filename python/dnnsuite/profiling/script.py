# SPDX-License-Identifier: MIT
"""`dnnsuite profile -- COMMAND`: the user's own script under the profiler, its exit status passed on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .._files import OutputError, read_json
from .._runs.interrupts import Interrupted, deferred
from ..errors import Error, check_choice, reason
from ..profiler import script
from ..profiler.activity import variables_for_markers
from ..profiler.instrument import choose
from ..profiler.monitor import Monitor
from .job import windows_of

_GRACE_S = 10.0
_MOST_RUNS = 1000
_TRACES = (
    "status.json",
    ".claimed",
    "profile.json",
    "rank-0",
)  # of an earlier run, also of one before there was a mark


def run_script(
    command: Sequence[str],
    out: Path,
    start_iteration: int,
    profile_iterations: int,
    metrics: str,
    stop: bool,
    as_json: bool,
    monitor: str = "auto",
    step_on: str = "auto",
    quiet: bool = False,
) -> int:
    """Run `command` with the profiler in every Python that it starts, and print the profile.

    Args:
        command: the user's command, a word each.
        out: directory of the profile; where it holds an earlier run, one beside it is made, and said.
        start_iteration: first step to observe.
        profile_iterations: number of steps to observe.
        metrics: metrics, as `dnnsuite profile --metrics` takes them.
        stop: end the command once it has been observed.
        as_json: print one JSON object.
        monitor: samples of the machine: auto, nvml, dcgm or none.
        step_on: event that ends a step: optimizer, backward or auto.
        quiet: say nothing about the progress of the profile.

    Returns:
        The command's exit status (128 + signal), whatever was observed.

    Raises:
        Error: the command cannot be started.
        OutputError: `out` cannot be made or written to; the command was not started.
        InvalidArgument: an unknown metric or end of a step, or iterations that mean nothing.
    """
    choose(metrics)
    windows_of(start_iteration, profile_iterations)  # checks both
    check_choice("--step-on", step_on, script.STEP_ON)
    # The profile begins when the first step has ended: before that nothing shows that there are steps.
    schedule, steps = windows_of(max(1, start_iteration), profile_iterations)
    given, is_new = out, not out.exists()
    out = _take(out)
    settings = {
        "out": str(out.absolute()), "schedule": asdict(schedule), "steps": steps, "metrics": metrics, "stop": stop,
        "step_on": step_on, "quiet": quiet,
    }  # fmt: skip
    if out != given and not quiet:
        print(f"dnnsuite: {given} holds an earlier run; this one is in {out}", file=sys.stderr, flush=True)
    try:
        with Monitor(monitor, counters=False) as watching:
            status = _run(command, _environment(settings), sys.stderr if as_json else None, watching.follow)
    except BaseException:
        _let_go(out, is_new or out != given)
        raise
    if any(out.rglob("status.json")):
        watching.write(out)
    found = [path.parent for path in sorted(out.rglob("status.json"))]
    profiles = [_read(directory) for directory in found]
    observed = [each for each in profiles if each["observed"]]
    remarks = [
        f"process {each['pid']} was ended after step {each['steps']}: its {each['observed']} observed steps are those "
        "of the windows that had closed"
        for each in observed
        if not each["done"]
    ]
    remarks += [
        f"after the {each['observed']} steps that were observed ({each['step_ends']}) came others ({each['later']}): "
        f"--step-on {each['later']} observes those"
        for each in observed
        if each.get("later")
    ]
    remarks += [] if observed else [_why_nothing(profiles, status, start_iteration)]
    if observed and start_iteration == 0:
        remarks.append("iteration 0 was not observed: before it has ended nothing shows that there are iterations")
    if not observed:
        _let_go(out, is_new or out != given)
    if as_json:
        print(json.dumps({"out": str(out), "status": status, "profiles": profiles, "remarks": remarks}))
    else:
        for each in observed:
            print((Path(each["directory"]) / "summary.txt").read_text(encoding="utf-8"))
            print(each["directory"])
    for remark in remarks:
        print(f"dnnsuite: {remark}", file=sys.stderr)
    return status


def _take(out: Path) -> Path:
    """Make the folder of a run; one beside it where another run's results are. Two runs never get the same."""
    for number in range(1, _MOST_RUNS):
        folder = out if number == 1 else out.with_name(f"{out.name}-{number}")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any((folder / name).exists() for name in _TRACES):
                continue
            os.close(os.open(folder / script.RUN, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError as error:
            if not folder.is_dir():
                raise OutputError(f"cannot make {folder}: {reason(error)}") from error
        except OSError as error:
            raise OutputError(f"cannot make {folder}: {reason(error)}") from error
        else:
            return folder
    raise OutputError(f"{out} and {_MOST_RUNS - 2} folders beside it have earlier runs: choose another --out")


def _let_go(out: Path, is_new: bool) -> None:
    """Remove the mark of a run without results, and its folder if it was made for it and nothing is in it."""
    with contextlib.suppress(OSError):
        (out / script.RUN).unlink(missing_ok=True)
        if is_new:
            out.rmdir()


def _environment(settings: dict[str, Any]) -> dict[str, str]:
    site = Path(script.__file__).parent / "_site"
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        **variables_for_markers(),
        script.VARIABLE: json.dumps(settings),
        "PYTHONPATH": os.pathsep.join(paths),
        "KINETO_LOG_LEVEL": os.environ.get("KINETO_LOG_LEVEL", "99"),  # it reports each window on stderr
    }


def _run(command: Sequence[str], environment: dict[str, str], stdout: Any, started: Callable[[int], None]) -> int:
    """Return the command's exit status as a shell tells it. A signal that ends this process is handed on first."""
    with deferred():
        try:
            process = subprocess.Popen(list(command), env=environment, stdout=stdout)
        except OSError as error:
            raise Error(f"cannot start {command[0]}: {reason(error)}") from error
    started(process.pid)
    try:
        returncode = process.wait()
    except Interrupted as interrupted:
        # Ctrl-C has reached the script already, which is in this process group; other signals have not.
        if interrupted.number != signal.SIGINT:
            process.send_signal(interrupted.number)
        try:
            returncode = process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
    return returncode if returncode >= 0 else 128 - returncode


def _read(directory: Path) -> dict[str, Any]:
    """Read a process's profile, summary and status, written in this order; after a kill the later ones are missing or
    old."""
    status: dict[str, Any] = {**read_json(directory / "status.json"), "directory": str(directory), "observed": 0}
    if (directory / "profile.json").is_file():
        status["profile"] = read_json(directory / "profile.json")
        status["observed"] = status["profile"]["steps"] if (directory / "summary.txt").is_file() else 0
    return status


def _why_nothing(profiles: Sequence[dict[str, Any]], status: int, start: int) -> str:
    failures = [each["failure"] for each in profiles if each["failure"]]
    ended = f"the command ended with status {status}" if status else "the command ended"
    if failures:
        return f"nothing was observed: {failures[0]}"
    if not profiles and status:
        return f"nothing was observed: the command failed with status {status} before its second training step"
    if not profiles:
        return (
            "nothing was observed: no torch.optim optimizer stepped, no gradient was computed, and no torch.nn.Module "
            "was called eight times. --step-on says what ends a step, and `with dnnsuite.profiler.profile()` observes "
            "any loop; a command that ends by os._exit, or python -I, cannot be observed"
        )
    most = max(each["steps"] for each in profiles)
    if all(each["done"] for each in profiles):
        earlier = f"try --start-iteration {most // 2}" if most > 1 else "it is too short to be observed"
        return f"nothing was observed: {ended} after {most} steps, before the window opened at {start}; {earlier}"
    return f"nothing was observed: {ended} in step {most}, without a chance to write (os._exit or a signal)"
