# SPDX-License-Identifier: MIT
"""Reads of a step that no snapshot tells of: the clock, files, iterators that move on, random numbers of Python's.

A replay would repeat what was read when it was recorded, so such a step is not captured. Which code runs is observed
while a step is recorded, but only where code that may run names one of these, or reaches a value that cannot be
compared: code that does not run reads nothing.
"""

from __future__ import annotations

import datetime
import dis
import os
import sys
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ..._code import any_names, line_of, loops_in, names_of, texts_of
from ..._fuse import SharedNumbers
from ..._state import Unknown
from .reach import Reach, is_installed

#: Names under which code finds the clock, files and the like; other things may have them, too.
_NAMES = frozenset((
    "time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "process_time", "thread_time", "now",
    "today", "utcnow", "open", "read", "readline", "read_text", "read_bytes", "exists", "is_file", "stat",
    "getmtime", "listdir", "scandir", "iterdir", "glob", "urandom", "getrandbits", "uuid4", "uuid1",
    "input", "next", "loadtxt", "load", "eval", "exec", "globals", "getcwd", "cwd", "abspath", "realpath", "resolve",
    "isfile", "isdir", "getsize", "lstat", "access", "current_thread", "get_ident", "get_native_id", "active_count",
    "getsignal", "getrefcount", "_getframe", "currentframe", "getlocale", "__subclasses__", "isenabled", "get_count",
    "gethostname", "getloadavg", "cpu_count", "getrusage", "modules", "disk_usage", "get_terminal_size",
))  # fmt: skip
_MODULES = {
    "time": "the clock", "posix": "the file system", "nt": "the file system", "io": "a file", "_io": "a file",
    "_thread": "the thread that runs it", "_signal": "the handlers of signals", "_locale": "the locale",
    "gc": "the collector of garbage", "_socket": "the network", "resource": "the system's resources",
}  # fmt: skip
_NO_DECISIONS = frozenset(("dataclasses", "reprlib"))  # they ask which thread runs, against endless recursion
_OF_SYS = {"getrefcount": "a count of references", "_getframe": "the code that has called it"}
_BY_TEXT = frozenset(("eval", "exec", "globals", "input"))
_NO_READS = frozenset(("getpid", "fspath", "sleep", "write", "flush", "putenv", "_path_splitroot"))
_RESUME = dis.opmap.get("RESUME", -1)


class Unseen:
    """Reasons not to capture a step: what it reads that the readers of `reach` do not tell.

    Args:
        reach: the code that a step may run, and its readers.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._names = bool(_NAMES & reach.names)
        self.alone = True  # nobody else may draw from Python's and NumPy's generators while a step runs
        self.moved = False  # they have moved while the last step ran
        self._observed: _Observed | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Context manager: observe the step that runs inside."""
        generators = SharedNumbers()
        self._observed = _Observed() if self._names or any(True for _ in self._unknown()) else None
        before = sys.getprofile()
        if self._observed is not None and before is None:
            sys.setprofile(self._observed.note)
        try:
            yield
        finally:
            if self._observed is not None and before is None:
                sys.setprofile(None)
            elif self._observed is not None:  # somebody else's profile counts: all code may have run
                self._observed.codes.update(self._reach.functions)
            self.moved = generators.moved()

    @property
    def in_doubt(self) -> bool:
        """True if random numbers were drawn beside the step, or by it: a step that runs alone will tell."""
        return self.moved and not self.alone

    def reason(self) -> str | None:
        """Explain why the observed step is not captured; None if nothing speaks against it."""
        observed = self._observed
        if self.moved and self.alone:
            place = self._place(("random", "np", "numpy", "choice", "shuffle", "rand"), self._reach.functions)
            return f"the step draws from Python's or NumPy's random generator{place}"
        if observed is None:
            return None
        if observed.reads:
            return "the step reads {}{}".format(*observed.reads[0])
        codes = [code for code in observed.codes if not is_installed(code.co_filename)]
        if any({"sys", "modules"} <= names_of(code) for code in codes):
            return f"the step can read sys.modules, the table of all modules{self._place(('modules',), codes)}"
        names = frozenset(name for code in codes for name in (*names_of(code), *texts_of(code), *code.co_freevars))
        for one in self._unknown():
            if not one.name or one.name in names or any(any_names(code).has(one.name) for code in codes):
                place = self._place((one.name or "",), codes)
                return f"the step can read {one.what} in {one.where}, which no guard can compare{place}"
        return None

    def _unknown(self) -> Iterator[Unknown]:
        for reader in self._reach.readers:
            yield from reader.unknown()
        yield from self._reach.unknown_in_modules()

    def _place(self, names: Iterable[str], codes: Iterable[types.CodeType]) -> str:
        """Name the line of a user's code that names one of these."""
        for name in names:
            for code in codes:
                line = line_of(code, name) if name and not is_installed(code.co_filename) else None
                if line is not None:
                    return f" at {os.path.basename(code.co_filename)}:{line} in {code.co_name}"
        return ""


class _Observed:
    """Code that has run, and reads of the clock and of files that a user's code has asked for."""

    def __init__(self) -> None:
        self.codes: set[types.CodeType] = set()
        self.reads: list[tuple[str, str]] = []
        self._begun: set[int] = set()

    def note(self, frame: types.FrameType, event: str, called: Any) -> None:
        """Take note of a call; `sys.setprofile` calls this."""
        if event == "call":
            code = frame.f_code
            self.codes.add(code)
            if code.co_flags & 0x20 and not is_installed(code.co_filename):
                step = code.co_code[frame.f_lasti : frame.f_lasti + 2]
                if frame.f_lasti < 0 or (step[0] == _RESUME and step[1] & 3 == 0):  # it begins, and does not go on
                    self._begun.add(id(frame))
                elif id(frame) not in self._begun:
                    self.reads.append(("a generator that goes on from step to step", _described(frame)))
        elif event == "c_call":
            what = _read_by(called)
            if what is not None:
                asked = _place_of(frame)
                if asked is not None:
                    self.reads.append((what, asked))


def _read_by(called: Any) -> str | None:
    """Name what a function of C code reads; None for one that gives the same for the same arguments."""
    owner = getattr(called, "__self__", None)
    if type(owner) is types.ModuleType:
        if owner.__name__ == "builtins" and called.__name__ in _BY_TEXT:
            return f"what {called.__name__}() finds"
        if owner.__name__ == "sys":
            return _OF_SYS.get(called.__name__)
        return None if called.__name__ in _NO_READS else _MODULES.get(owner.__name__)
    if isinstance(owner, type) and issubclass(owner, datetime.date) and called.__name__ in ("now", "today", "utcnow"):
        return "the clock"
    return "the subclasses of a class" if called.__name__ == "__subclasses__" else None


def _place_of(frame: types.FrameType | None) -> str | None:
    """Name the line of the user's code that asked for it, maybe through the standard library; None if torch or this
    package did."""
    while frame is not None and is_installed(frame.f_code.co_filename):
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package in _NO_DECISIONS:
            return None
        if package not in sys.stdlib_module_names or package == "logging":  # a message's time decides nothing
            return None
        frame = frame.f_back
    return None if frame is None else _described(frame)


_PACKAGE = Path(__file__).parents[2]
_END = str(_PACKAGE / "_step" / "shard.py")  # it calls the loss function: what is further out is no part of the step
_TORCH = str(Path(torch.__file__).parent)
_NOT_THE_USERS = (
    _TORCH,
    *(str(_PACKAGE / room) for room in ("_code", "_fuse", "_state", "_step", "_ways", "nn", "ops", "optim", "_torch")),
    "<",  # frozen modules, generated code
)


_kinds: dict[str, int] = {}  # by file: a hash of code takes longer than the whole search


def _kind(file: str) -> int:
    """Classify a file: 1 for a user's code, 0 for this package's or torch's, -1 for the end of the step."""
    found = _kinds.get(file)
    if found is None:
        found = _kinds[file] = -1 if file == _END else int(not file.startswith(_NOT_THE_USERS))
    return found


def _users_frame(frame: Any) -> Any:
    """Find the innermost frame of user's code in this step; None in backward or update."""
    known = _kinds.get  # called for each operator of a recorded step, under some twenty frames
    while frame is not None:
        file = frame.f_code.co_filename
        kind = known(file)
        if kind is None:
            kind = _kind(file)
        if kind:
            return frame if kind == 1 else None
        frame = frame.f_back
    return None


def user_place() -> str:
    """` at model.py:12 in forward`: the innermost line of user's code in this step; empty in backward or update."""
    frame = _users_frame(sys._getframe(1))
    return "" if frame is None else _described(frame)


def place_of_error(error: BaseException) -> str:
    """Name the innermost line of user's code in this step that an error passed, as `user_place` does."""
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    for frame, line in reversed(frames):
        kind = _kind(frame.f_code.co_filename)
        if kind:
            return _described(frame, line) if kind == 1 else ""
    return ""


def in_a_loop() -> bool:
    """Return True if the innermost line of user's code in this step lies in a loop of its function."""
    frame = _users_frame(sys._getframe(1))
    return frame is not None and any(begin <= frame.f_lasti <= end for begin, end in loops_in(frame.f_code))


def called_by_user() -> str | None:
    """Name the line of the user's code that has called torch; None if other code has."""
    frame: Any = sys._getframe(2)
    while frame is not None and (
        frame.f_code.co_filename.startswith(_TORCH) or frame.f_code.co_name == "__torch_function__"
    ):  # the latter hands on what others call
        frame = frame.f_back
    return _described(frame) if frame is not None and _kind(frame.f_code.co_filename) == 1 else None


def _described(frame: Any, line: int | None = None) -> str:
    line = frame.f_lineno if line is None else line
    return f" at {os.path.basename(frame.f_code.co_filename)}:{line} in {frame.f_code.co_name}"
