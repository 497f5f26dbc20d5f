# SPDX-License-Identifier: MIT
"""A profile inside an unchanged script: steps are found at the optimizer, the profile opens and closes by itself.

`dnnsuite profile -- COMMAND` puts `_site/sitecustomize.py` on the path of every Python that COMMAND starts, which calls
:func:`install`. Nothing here may break the script: what fails is said on standard error, and the script goes on.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.abc
import importlib.machinery
import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._profile import Profile

__all__ = ["VARIABLE", "Script", "install"]

VARIABLE = "DNNSUITE_PROFILE_SCRIPT"  # JSON: out, schedule, steps, metrics, stop


def install() -> None:
    """Watch for optimizers of this process once it imports torch; does nothing where no profile was asked for."""
    if VARIABLE not in os.environ:
        return
    try:
        script = Script(json.loads(os.environ[VARIABLE]))
    except (ValueError, KeyError) as error:
        _say(f"{VARIABLE}: {error!r}; this process is not observed")
        return
    when_imported("torch.optim.optimizer", lambda: script.attach())


class Script:
    """The profile of one process: begins when its first optimizer steps, ends with its schedule or with the process."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._profile: Profile | None = None
        self._leader: Any = None  # the optimizer whose steps count: of several, as a GAN has, the first
        self._steps = self._owner = 0
        self._thread = 0
        self._over = False
        self._directory: Path | None = None

    def attach(self) -> None:
        """Have every optimizer call back after its step, once torch's own hooks have run: opening a window changes
        the list of those, which torch is iterating over before that.
        """
        torch, Optimizer = (
            sys.modules["torch"],
            sys.modules["torch.optim.optimizer"].Optimizer,
        )  # being imported
        wrap = Optimizer.profile_hook_step

        def profile_hook_step(function: Callable[..., Any]) -> Callable[..., Any]:
            step = wrap(function)

            @functools.wraps(step)
            def stepped(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
                result = step(optimizer, *args, **kwargs)
                if not torch.compiler.is_compiling():
                    self.stepped(optimizer)
                return result

            return stepped

        Optimizer.profile_hook_step = staticmethod(profile_hook_step)

    def stepped(self, optimizer: Any) -> None:
        if self._over or (self._owner and self._owner != os.getpid()):
            return
        try:
            self._count(optimizer)
        except Exception as error:
            self._over = True
            with contextlib.suppress(Exception):
                if self._profile is not None:
                    self._profile.stop()
            _say(f"the profile failed, the script goes on: {error}")
            self._write_status(failure=str(error))
        if self._over and self._settings["stop"] and self._profile is not None and self._profile.done:
            raise SystemExit(0)

    def _count(self, optimizer: Any) -> None:
        if self._leader is None:
            self._begin(optimizer)
            return
        if (
            optimizer is not self._leader
            or threading.get_native_id() != self._thread
            or self._profile is None
        ):
            return
        self._steps += 1
        self._profile.step()
        if self._steps % 10 == 0 and not self._profile.done:
            self._write_status()
        if self._steps >= self._settings["steps"]:
            self._finish()

    def _begin(self, optimizer: Any) -> None:
        """The first step has ended: what follows is step 1, which is step 0 of the schedule."""
        from ._profile import profile
        from ._schedule import Schedule

        self._leader, self._owner, self._thread = optimizer, os.getpid(), threading.get_native_id()
        self._directory = claim_directory(Path(self._settings["out"]))
        about = {"command": " ".join(sys.argv) or sys.executable, "device": _device_of(optimizer)}
        schedule = Schedule(**self._settings["schedule"])
        self._profile = profile(
            self._settings["metrics"], schedule=schedule, about=about, device=about["device"]
        )
        self._steps = 1
        self._write_status()
        atexit.register(self._at_exit)
        self._profile.start()

    def _finish(self, why: str | None = None) -> None:
        self._over = True
        if self._profile is None or self._directory is None:
            return
        self._profile.stop(why)
        self._profile.save(self._directory)
        self._write_status(done=True)
        if self._profile.active:
            _say(f"{len(self._profile.active)} steps were observed; results in {self._directory}")

    def _at_exit(self) -> None:
        if self._over or self._owner != os.getpid():
            return
        try:
            self._finish("the script ended")
        except Exception as error:
            _say(f"the profile failed: {error}")
            self._write_status(failure=str(error))

    def _write_status(self, done: bool = False, failure: str | None = None) -> None:
        if self._directory is None:
            return
        observed = len(self._profile.active) if self._profile is not None and self._profile.tables else 0
        status = {
            "pid": os.getpid(),
            "steps": self._steps,
            "observed": observed,
            "done": done,
            "failure": failure,
        }
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            (self._directory / "status.json").write_text(json.dumps(status), encoding="utf-8")
        except OSError as error:
            _say(f"cannot write {self._directory}: {error}")


def claim_directory(out: Path) -> Path:
    """A directory of this process's own: `out` for the first to train, `out/process-PID` for others."""
    rank = os.environ.get("RANK")
    if rank is not None:
        return out / f"rank-{rank}"
    try:
        out.mkdir(parents=True, exist_ok=True)
        os.close(os.open(out / ".claimed", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return out / f"process-{os.getpid()}"
    return out


def _device_of(optimizer: Any) -> str:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            return str(parameter.device.type)
    return "cpu"


def _say(text: str) -> None:
    print(f"dnnsuite: {text}", file=sys.stderr, flush=True)


def when_imported(name: str, then: Callable[[], None]) -> None:
    """Call `then` once module `name` has been imported, and not import it before."""
    if name in sys.modules:
        then()
        return
    sys.meta_path.insert(0, _Watcher(name, then))


class _Watcher(importlib.abc.MetaPathFinder):
    """Finds one module as the other finders do, with a loader that says when it is there."""

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
            spec.loader = _Loader(spec.loader, self._then)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any, then: Callable[[], None]) -> None:
        self._loader, self._then = loader, then

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        try:
            self._then()
        except Exception as error:
            _say(f"optimizers cannot be watched: {error}; this process is not observed")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
