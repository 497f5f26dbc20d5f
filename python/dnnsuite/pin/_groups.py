# SPDX-License-Identifier: MIT
"""Control groups of this package, and the processes of a run where no group holds them.

Groups have names that tell their owner, and those whose owner is gone are removed. Processes are known by a variable
that they inherit. Runs on this machine, of all users, note their CPUs in a small file each, so that two runs on the
same ones say so. A file bears the name of its run; one of a dead owner counts for nothing.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .. import host
from .._C import Cgroup, format_cpu_list, parse_cpu_list, read_hierarchies
from .errors import CgroupBusy, CgroupError

RUN_VARIABLE = "DNNSUITE_PIN_RUN"  # run and share, as dnnsuite-12-34-56-ab/student0
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SEARCH_S = 2.0  # at least, between two searches through the processes of the machine
_SEARCH_SHARE = 0.005  # of the time, at most, that is spent in them


def of_run(name: str) -> list[int]:
    """Processes whose environment says that they are of the run, or of a share of it (`run/share`).

    One that starts a program with another environment and then leaves its parent is not seen.
    """
    marks = (f"{RUN_VARIABLE}={name}\0".encode(), f"{RUN_VARIABLE}={name}/".encode())
    found, parents = set(), {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            environment = b"\0" + Path("/proc", entry, "environ").read_bytes() + b"\0"
            state, parent = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # ended meanwhile, or another user's
        parents[int(entry)] = int(parent)
        if state not in "ZX" and any(b"\0" + mark in environment for mark in marks):
            found.add(int(entry))
    grown = True
    while grown:  # and their children, whatever their environment
        more = {process for process, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return sorted(found)


class Members:
    """The processes of a run or share, to be read again and again at little cost.

    A search as :func:`of_run` makes takes longer the more runs on the machine. Between two of them the children of
    those that are known are followed; one that left its parent in the meantime is found by the next search.
    """

    def __init__(self, name: str, leader: int) -> None:
        self._name, self._known = name, {leader}
        self._search_at_s = time.monotonic() + _SEARCH_S

    def processes(self) -> list[int]:
        """List them; some may have ended."""
        began_s = time.monotonic()
        if began_s < self._search_at_s:
            self._known = set(host.family(self._known))
        else:
            self._known = set(of_run(self._name))
            ended_s = time.monotonic()
            self._search_at_s = ended_s + max(_SEARCH_S, (ended_s - began_s) / _SEARCH_SHARE)
        return sorted(self._known)


def end(name: str, timeout_s: float = 5.0) -> list[int]:
    """Kill the processes of a run or share; returns those that are still there after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while left := of_run(name):
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
            except PermissionError:
                return left
        if time.monotonic() > deadline:
            return left
        time.sleep(0.005)
    return []


def resident_bytes(processes: Iterable[int]) -> int:
    """Sum the processes' anonymous memory, without pages of files, in bytes."""
    total = 0
    for process in processes:
        try:
            fields = Path(f"/proc/{process}/statm").read_text().split()
        except OSError:
            continue
        total += (int(fields[1]) - int(fields[2])) * _PAGE
    return total


# owner's pid, its start in clock ticks since boot, inode of its pid namespace, and a number of the run
_NAME = re.compile(r"^dnnsuite-(\d+)-(\d+)-(\d+)-[0-9a-f]+(-supervisor)?$")
_DEEPEST = 12


@dataclass(frozen=True)
class Leftover:
    """Groups of one run: a folder in each hierarchy.

    `state` is `live` (its owner runs), `stale` (it does not), or `foreign` (another pid namespace's, untouchable).
    """

    name: str
    owner: int
    state: str
    folders: tuple[tuple[int, str], ...]
    processes: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {
            "name": self.name,
            "owner": self.owner,
            "state": self.state,
            "processes": list(self.processes),
            "folders": [folder for _, folder in self.folders],
        }


def run_name(process: int | None = None) -> str:
    """Name the groups of a run so that their owner, `process` (by default this one), is known even after its death."""
    mine = os.getpid() if process is None else process
    return f"dnnsuite-{mine}-{_started_ticks(mine)}-{_pid_namespace()}-{secrets.token_hex(4)}"


def _started_ticks(process: int) -> int | None:
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[19])


def _pid_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def owner_state(name: str) -> str:
    """Return `live`, `stale` or `foreign`, by the name alone; empty for a name of another kind."""
    found = _NAME.match(name)
    if not found:
        return ""
    if int(found[3]) != _pid_namespace():
        return "foreign"
    return "live" if _started_ticks(int(found[1])) == int(found[2]) else "stale"


def _search(folder: str, depth: int) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            inner = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for path in inner:
        if _NAME.match(os.path.basename(path)):
            yield path
        elif depth:
            yield from _search(path, depth - 1)


def find(root: str = "") -> list[Leftover]:
    """Return the groups of every run, in all hierarchies that are mounted."""
    folders: dict[str, list[tuple[int, str]]] = {}
    for hierarchy in read_hierarchies(root):
        for path in _search(hierarchy["mount_point"], _DEEPEST):
            folders.setdefault(os.path.basename(path), []).append((hierarchy["version"], path))
    found = []
    for name, where in sorted(folders.items()):
        processes = _processes(where)
        found.append(Leftover(name, int(name.split("-")[1]), owner_state(name), tuple(where), tuple(processes)))
    return found


def _processes(folders: list[tuple[int, str]]) -> list[int]:
    inside: set[int] = set()
    for _, top in folders:
        for path, _, _ in os.walk(top):
            try:
                inside.update(int(line) for line in Path(path, "cgroup.procs").read_text().split())
            except OSError:
                continue  # gone meanwhile
    return sorted(inside)


def clean(kill: bool = False, root: str = "", only: str = "") -> list[tuple[Leftover, str]]:
    """Remove the groups whose owner is gone; returns each with what was done.

    Args:
        kill: end the processes in them first; groups with processes stay otherwise.
        only: the name of one run, whose owner may be alive still.

    Raises:
        CgroupError: a group cannot be removed.
    """
    done = []
    for left in find(root):
        mine = left.name.startswith(only) if only else left.state == "stale"
        if not mine:
            done.append((left, f"kept: {left.state}"))
            continue
        if left.processes and not kill:
            done.append((left, "kept, because processes are in it; end them with --kill"))
            continue
        done.append((left, _remove(left, root)))
    return done


def _remove(left: Leftover, root: str) -> str:
    folders = [(version, path) for version, path in left.folders if os.path.isdir(path)]
    freezers = [h["mount_point"] for h in read_hierarchies(root) if "freezer" in h["controllers"]]
    group = Cgroup.adopt(folders)
    stuck = group.kill(5.0) if left.processes else []
    for mount in freezers:  # its owner may have died between freezing and thawing
        for _, path in folders:
            if path.startswith(f"{mount}/") and Path(path, "freezer.state").exists():
                Path(path, "freezer.state").write_text("THAWED")
    if stuck:
        raise CgroupBusy("remove", folders[0][1], "", 0, f"processes do not end: {stuck}")
    group.remove()
    killed = f", killed {len(left.processes)} processes" if left.processes else ""
    return f"removed{killed}"


_FOLDER = "dnnsuite-pins"
_LONGEST = 1 << 16  # bytes of a file


class Holder(NamedTuple):
    """A run that holds CPUs which another one wants, too."""

    name: str
    process: int
    cpus: str  # those that both have

    def __str__(self) -> str:
        return f"CPUs {self.cpus} are held by another run, too ({self.name}, process {self.process})"


def _folder() -> Path:
    """Return the folder of all users, in memory where the machine has such a place; `$DNNSUITE_PINS` is another."""
    if named := os.environ.get("DNNSUITE_PINS"):
        return Path(named)
    shared = Path("/dev/shm")
    return (shared if shared.is_dir() and os.access(shared, os.W_OK) else Path("/tmp")) / _FOLDER


def hold(name: str, cpus: str) -> None:
    """Say that run `name` holds `cpus`. Does nothing where that cannot be written: it is a courtesy."""
    folder = _folder()
    with suppress(OSError):
        with suppress(FileExistsError):
            folder.mkdir()
            folder.chmod(0o1777)
        if not stat.S_ISDIR(folder.lstat().st_mode):
            return
        temporary = folder / f".{name}"
        file = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o644)
        with os.fdopen(file, "w") as opened:
            opened.write(cpus)
        os.replace(temporary, folder / name)


def release(name: str) -> None:
    """Say that the run is over. Idempotent."""
    with suppress(OSError):
        (_folder() / name).unlink()


def overlapping(name: str, cpus: str) -> list[Holder]:
    """List the live runs that hold some of `cpus`, but this one and that inside of which it runs."""
    mine = set(parse_cpu_list(cpus))
    around = os.environ.get(RUN_VARIABLE, "").partition("/")[0]
    found = []
    for path in _files():
        if path.name in (name, around) or owner_state(path.name) != "live":
            continue
        with suppress(OSError, ValueError, IndexError):
            text = path.read_text() if path.stat().st_size < _LONGEST else ""
            if both := mine & set(parse_cpu_list(text)):
                found.append(Holder(path.name, int(path.name.split("-")[1]), format_cpu_list(sorted(both))))
    return found


def _files() -> Iterator[Path]:
    with suppress(OSError):
        for path in sorted(_folder().iterdir()):
            if owner_state(path.name) == "stale":
                with suppress(OSError):
                    path.unlink()
            elif stat.S_ISREG(path.lstat().st_mode):
                yield path


_TRIES = 20


class Guard:
    """Watch over this process: when it is gone without :meth:`release`, everything of the run `name` is ended."""

    def __init__(self, name: str) -> None:
        read, self._write = os.pipe()  # the end is closed by the kernel when this process dies
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import main; main({read}, {name!r})"],
                pass_fds=(read,),
                start_new_session=True,
                close_fds=True,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except BaseException:
            os.close(self._write)
            raise
        finally:
            os.close(read)

    def release(self) -> None:
        """Stand down: nothing is left to be ended."""
        if self._write >= 0:
            os.write(self._write, b"!")
            os.close(self._write)
            self._write = -1
            self._process.wait()


def main(descriptor: int, name: str) -> None:
    """Wait for the end of the pipe; a byte before it means that all is well."""
    if os.read(descriptor, 1):
        return
    for _ in range(_TRIES):  # what the supervisor had just begun may appear yet
        try:
            end(name)
            left = [done for _, done in clean(kill=True, only=name) if not done.startswith("kept")]
        except (CgroupError, OSError):
            left = ["failed"]
        if not left and not of_run(name):
            return
        time.sleep(0.1)
