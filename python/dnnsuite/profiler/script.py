# SPDX-License-Identifier: MIT
"""Profile inside an unchanged script: it finds the steps, opens and closes by itself.

`dnnsuite profile -- COMMAND` puts `_site/sitecustomize.py` on the path of every Python that COMMAND starts, which calls
:func:`install`. Nothing here may break the script: an error is reported on standard error, and the script continues.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from ..errors import Unavailable
from ._step_ends import STEP_ON, StepEnd, StepEnds

if TYPE_CHECKING:
    from ._profile import Profile

__all__ = ["RUN", "STEP_ON", "VARIABLE", "Script", "install"]

RUN = ".run"  # of a folder that a run has taken
VARIABLE = "DNNSUITE_PROFILE_SCRIPT"  # JSON: out, schedule, steps, metrics, stop, step_on
_ENDING = (signal.SIGTERM, signal.SIGHUP)  # of those that end a process where nobody handles them


def install() -> None:
    """Watch for the steps of this process once it imports torch; does nothing where no profile was asked for."""
    if VARIABLE not in os.environ:
        return
    try:
        script = Script(json.loads(os.environ[VARIABLE]))
    except (ValueError, KeyError) as error:
        _say(f"{VARIABLE}: {error!r}; this process is not observed")
        return
    when_imported("torch.optim.optimizer", script.ends.attach_optimizers)
    when_imported("torch.autograd", script.ends.attach_backward)
    when_imported("torch.nn.modules.module", script.ends.attach_modules)


class Script:
    """The profile of one process: begins when its first step has ended, ends with its schedule or with the process.

    Of several loops (a GAN's two optimizers, threads that each train) the first is observed.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self.ends = StepEnds(self.stepped, settings.get("step_on", "auto"))
        self._profile: Profile | None = None
        self._kind = ""  # of the ends of the steps that count
        self._loop: object = None  # what ends them
        self._later = ""  # a kind that says more, and came when all had been seen
        self._steps = self._owner = self._missed = 0
        self._thread = self._last = 0
        self._over = self._busy = self._waits = False
        self._directory: Path | None = None
        self._lock = threading.RLock()
        self._signal: int | None = None  # one that came while the profile was at work
        self._written = 0  # steps whose window is in files

    def stepped(self, end: StepEnd) -> None:
        """Count a step that has ended; an error here is reported, and the script continues."""
        if self._owner and self._owner != os.getpid():
            return
        if self._kind and end.kind != self._kind:
            self._begin_anew(end.kind)
        if self._over:
            return
        if self._loop is not None and not self._is_mine(end):
            return
        with self._lock:
            if self._over or (self._loop is not None and not self._is_mine(end)):
                return
            self._busy = True
            try:
                self._count(end)
            except Exception as error:
                self._fail(error)
            finally:
                self._busy = False
        if self._signal is not None:
            number, self._signal = self._signal, None
            os.kill(os.getpid(), number)  # to the handler, which runs in the main thread
        if self._over and self._settings["stop"] and self._profile is not None and self._profile.done:
            raise SystemExit(0)

    def _begin_anew(self, kind: str) -> None:
        """Let go of what was observed: the steps that count are of another kind, as of training after evaluation."""
        with self._lock:
            if self._over:
                if not self._later:
                    self._later = kind
                    self._write_status(done=True)
                return
            self._kind = kind
            profile, self._profile, self._loop, self._missed = self._profile, None, None, 0
            with contextlib.suppress(Exception):
                if profile is not None:
                    profile.stop("steps of another kind began")

    def _is_mine(self, end: StepEnd) -> bool:
        return end.loop is self._loop and threading.get_native_id() == self._thread

    def _count(self, end: StepEnd) -> None:
        if self._profile is None:
            self._begin(end)
            return
        self._steps += 1
        self._profile.step()
        if self._steps % 10 == 0 and not self._profile.done:
            self._write_status()
        if self._steps >= self._last:
            self._finish()

    def _begin(self, end: StepEnd) -> None:
        """Begin the profile after the first step: the next one is step 1, which is step 0 of the schedule."""
        # In a thread of its own, because this one may be inside of a transform of torch.func, where less is allowed.
        importing = threading.Thread(target=importlib.import_module, args=("dnnsuite._torch",))
        importing.start()
        importing.join()
        from ._profile import profile
        from ._windows import Schedule

        about = {"command": " ".join(sys.argv) or sys.executable, "device": end.device, "step_ends": end.kind}
        if remark := self.ends.remark:
            about["step_is"] = remark
        # Iterations are counted from 0, as the script counts them: those that have ended are not to be had any more.
        ended = end.before + self._missed + 1
        schedule = Schedule(**self._settings["schedule"])
        late = max(0, ended - max(1, schedule.first_active))
        if late:
            schedule = replace(schedule, skip_first=schedule.skip_first + late)
        started = profile(
            self._settings["metrics"], schedule=schedule, about=about, device=end.device, on_ready=self._write_window
        )
        started.first = ended
        if self._directory is None:
            self._owner, self._directory = os.getpid(), claim_directory(Path(self._settings["out"]))
        try:
            started.start()
        except Unavailable as unavailable:  # the script's own torch.profiler records: after it, then
            if not self._waits and not self._settings.get("quiet"):
                _say(f"{unavailable}; the profile begins when that is possible")
            self._waits = True
            self._missed += 1
            self._write_status(failure=str(unavailable))
            return
        self._loop, self._thread, self._profile, self._kind = (end.loop, threading.get_native_id(), started, end.kind)
        self._steps, self._last = ended, self._settings["steps"] + late
        self._write_status()
        self._catch_signals()
        atexit.register(self._at_exit)  # after those of the instruments, which run later then

    def _write_window(self, profile: Profile) -> None:
        """Write the files of a closed window, so that they survive any end of the process."""
        if self._directory is not None:
            profile.save(self._directory, figures=False)  # those come last: they take a second
            self._written = len(profile.active)
            self._write_status()

    def _finish(self, why: str | None = None) -> None:
        self._over = True
        if self._profile is None or self._directory is None:
            return
        self._profile.stop(why)
        self._profile.save(self._directory)
        self._written = len(self._profile.active)
        self._write_status(done=True)
        self._release_signals()
        if self._profile.active and not self._settings.get("quiet"):
            seen = len(self._profile.active)
            _say(f"{seen} step{'s were' if seen > 1 else ' was'} observed; results in {self._directory}")

    def _fail(self, error: Exception) -> None:
        self._over = True
        with contextlib.suppress(Exception):
            if self._profile is not None:
                self._profile.stop()
        _say(f"the profile failed; the script continues: {error}")
        self._write_status(failure=str(error))

    def _at_exit(self) -> None:
        if self._over or self._owner != os.getpid():
            return
        try:
            self._finish("the script ended")
        except Exception as error:
            _say(f"the profile failed: {error}")
            self._write_status(failure=str(error))

    def _catch_signals(self) -> None:
        """Save the profile on signals that would end the process; the script's own handlers stay."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _ENDING:
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, self._on_signal)
        os.register_at_fork(after_in_child=self._release_signals)

    def _release_signals(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in _ENDING:
                if signal.getsignal(number) == self._on_signal:
                    signal.signal(number, signal.SIG_DFL)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._busy:
            self._signal = number  # the step's count ends first
        else:
            self._end_by(number)

    def _end_by(self, number: int) -> None:
        if self._owner == os.getpid() and not self._over:
            with contextlib.suppress(Exception):
                self._finish(f"{signal.Signals(number).name} ended the script")
        self._release_signals()
        os.kill(os.getpid(), number)

    def _write_status(self, done: bool = False, failure: str | None = None) -> None:
        from .._files import write_json

        if self._directory is None:
            return
        status = {
            "pid": os.getpid(),
            "steps": self._steps,
            "observed": self._written,
            "done": done,
            "failure": failure,
            "step_ends": self._kind or self.ends.kind,
            "later": self._later,
        }
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            write_json(self._directory / "status.json", status)
        except Exception as error:
            _say(f"cannot write {self._directory}: {error}")


def claim_directory(out: Path) -> Path:
    """Take a directory for this process: `out` for the first to train, `out/process-PID` for others."""
    rank = os.environ.get("RANK")
    if rank is not None:
        return out / f"rank-{rank}"
    try:
        out.mkdir(parents=True, exist_ok=True)
        os.close(os.open(out / ".claimed", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return out / f"process-{os.getpid()}"
    return out


def _say(text: str) -> None:
    print(f"dnnsuite: {text}", file=sys.stderr, flush=True)


def when_imported(name: str, then: Callable[[], None]) -> None:
    """Call `then` after an import of module `name`, without importing it."""
    if name in sys.modules:
        then()
        return
    sys.meta_path.insert(0, _Watcher(name, then))


class _Watcher(importlib.abc.MetaPathFinder):
    """Finder of one module, through the other finders, whose loader reports the import."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                try:
                    self._then()
                except Exception as error:
                    _say(f"optimizers cannot be watched: {error}; this process is not observed")

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
