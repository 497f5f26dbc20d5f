# SPDX-License-Identifier: MIT
"""A command that runs in a share, and its outcome."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .._C import Cgroup, Process, parse_cpu_list
from . import _groups
from .plan import Slot

_POLL_S = 0.1  # how soon Ctrl-C is heard
_WATCH_S = 0.2


@dataclass(frozen=True)
class Outcome:
    """Result of a command.

    Attributes:
        returncode: exit status, or, like in `subprocess`, minus the number of the signal that ended it.
        timed_out: True if it was ended after its time limit.
        oom_killed: True if a process was killed for memory; None if that is unknown.
        oom_scope: the limit that was hit: `group` (its own), `outside` (a limit further up, or the memory of the
            machine) or `unknown` (cgroup version 1 does not say); otherwise empty.
        survivors: number of processes that it left behind and that were then ended.
        elapsed_s: wall time; `cpu_seconds` is CPU time of all its processes.
        memory_peak_bytes: largest memory of its group; None if unknown.
        level: isolation it had: cgroup, affinity or none.
        verified: settings read back from the kernel, by name.
    """

    returncode: int
    timed_out: bool
    oom_killed: bool | None
    oom_scope: str
    survivors: int
    elapsed_s: float
    cpu_seconds: float
    memory_peak_bytes: int | None
    level: str
    verified: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if it ended by itself with status 0 and none of its processes was killed for memory."""
        return self.returncode == 0 and not self.timed_out and not self.oom_killed

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {**asdict(self), "ok": self.ok}


class Running:
    """A command that runs in a share; :meth:`Partition.start` returns one."""

    def __init__(
        self,
        process: Process,
        group: Cgroup | None,
        name: str,
        slot: Slot,
        level: str,
        watched_bytes: int | None,
        kept: Mapping[str, str],
    ) -> None:
        self.slot, self.pid = slot, process.id
        self._process, self._group, self._name, self._level = process, group, name, level
        self._started_s = time.monotonic()
        self._ended: dict[str, Any] | None = None
        self._outcome: Outcome | None = None
        self._timed_out = False
        self._over_limit = False
        self._peak_bytes = 0
        self.verified = self._verify(kept)
        self._stop = threading.Event()
        if watched_bytes is not None:
            threading.Thread(target=self._watch_memory, args=(watched_bytes,), daemon=True).start()

    def _verify(self, kept: Mapping[str, str]) -> dict[str, Any]:
        """Isolation of the process as the kernel reports it right after its start."""
        said: dict[str, Any] = {"method": self._process.method, "user_variables": dict(kept)}
        try:
            cpus = os.sched_getaffinity(self.pid)
            groups = Path(f"/proc/{self.pid}/cgroup").read_text().splitlines()
        except OSError:  # it has ended already
            return {**said, "affinity": None}
        said["affinity"] = None if self._level == "none" else cpus == set(parse_cpu_list(self.slot.cpus))
        if self._group is not None:
            own = {os.path.basename(folder["folder"]) for folder in self._group.folders}
            inside = [line for line in groups if line.rpartition("/")[2] in own]
            said["in_group"] = len(inside) >= len(self._group.folders)
            said["limits"] = self._group.applied
        return said

    def _watch_memory(self, limit_bytes: int) -> None:
        """Watch the memory of all processes of the run, where no group limits it; end them above `limit_bytes`."""
        members = _groups.Members(self._name, self.pid)
        while not self._stop.wait(_WATCH_S):
            used = _groups.resident_bytes(members.processes())
            self._peak_bytes = max(self._peak_bytes, used)
            # The number of one that ended may have gone to another program: a new search tells.
            if used > limit_bytes and _groups.resident_bytes(_groups.of_run(self._name)) > limit_bytes:
                self._over_limit = True
                _groups.end(self._name)

    def __repr__(self) -> str:
        state = "running" if self._ended is None else "ended"
        return f"Running({self._name!r}, pid={self.pid}, {self.slot!r}, {state})"

    def poll(self) -> int | None:
        """Return the exit status (after a signal, minus its number); None while it runs."""
        return self.wait(0)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for the exit status (after a signal, minus its number); None if it runs longer than `timeout_s`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self._ended is None:
            left = _POLL_S if deadline is None else min(_POLL_S, max(0.0, deadline - time.monotonic()))
            self._ended = self._process.wait(left)
            if self._ended is None and deadline is not None and time.monotonic() >= deadline:
                return None
        return -self._ended["signal"] or self._ended["code"]

    def send(self, number: int) -> None:
        """Send a signal to the command and to what it started in its session."""
        self._process.send(number, True)

    def kill(self) -> None:
        """Kill the command and everything that it started."""
        if self._group is not None and self._outcome is None:
            self._group.kill(5.0)
        if self._ended is None:
            self._process.send(signal.SIGKILL)
        if self._group is None:
            _groups.end(self._name)

    def finish(self, timeout_s: float | None = None) -> Outcome:
        """Wait at most `timeout_s`, end the processes that are left, count them, and remove the group."""
        if self._outcome is not None:
            return self._outcome
        code = self.wait(timeout_s)
        if code is None:
            self._timed_out = True
            self.kill()
            code = self.wait()
        assert code is not None
        assert self._ended is not None
        elapsed = time.monotonic() - self._started_s
        survivors = self._end_survivors()
        self._stop.set()
        counters: dict[str, Any] = self._group.counters() if self._group is not None else {}
        kills, here = counters.get("oom_kills"), counters.get("oom_here")
        scope = "" if not kills else "unknown" if here is None else "group" if here else "outside"
        peak = counters.get("memory_peak_bytes")
        self._outcome = Outcome(
            returncode=code,
            timed_out=self._timed_out,
            oom_killed=True if self._over_limit else None if kills is None else kills > 0,
            oom_scope="group" if self._over_limit else scope,
            survivors=survivors,
            elapsed_s=elapsed,
            cpu_seconds=counters.get("cpu_seconds") or self._ended["cpu_seconds"],
            memory_peak_bytes=peak if peak is not None else max(self._peak_bytes, self._ended["peak_resident_bytes"]),
            level=self._level,
            verified={**self.verified, "forks_refused": counters.get("forks_refused")},
        )
        if self._group is not None:
            self._group.remove()
        return self._outcome

    def _end_survivors(self) -> int:
        """End the processes left behind; return their number. Counters are read afterwards, because they rise until the
        last process is gone."""
        if self._group is not None:
            left = self._group.processes()
            self._group.kill(5.0)
        else:
            left = _groups.of_run(self._name)
            _groups.end(self._name)
        return 0 if self._timed_out else len(left)

    def close(self) -> None:
        """Stop the command at once, then do the same as :meth:`finish`."""
        if self._outcome is None:
            self.kill()
            self.finish()
