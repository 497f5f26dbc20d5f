# SPDX-License-Identifier: MIT
"""A sweep on disk: a record of each trial, the states that others continue from, the best weights, its own file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from .._files import OutputError
from .._runs import facts
from .._runs.folder import PlanFolder
from .._runs.identity import Identity, identity_of
from .._runs.reading import RUN_FILE, TrialLog
from .._runs.record import Metric, Moment, RunRecord, Verdict, new_id
from .._saved import load_tensors, save_tensors
from ..errors import InvalidArgument, reason
from .space import named
from .trial import Trial

BEST_FILE = "best.pt"
_UNDER_WAY = "-under-way"
Asked = tuple[Identity, tuple[str, ...]]  # what decides the numbers, and names of what may differ


@dataclass(frozen=True)
class Kept:
    """A trial that an earlier process left: its epochs, and the file of its state, by the number of epochs.

    Attributes:
        config: values with which it began, as a record keeps them; `told` is their identity.
    """

    history: list[dict[str, float]]
    states: Mapping[int, Path]
    seconds: float
    failure: str
    message: str
    status: str
    config: Any = None
    told: str = ""
    audits_passed: int = 0
    changed: Mapping[str, str] = field(default_factory=dict)

    def is_of(self, config: Mapping[str, Any]) -> bool:
        """Return True if it may be what was trained with `config`."""
        return self.told == _told(config)


class Store:
    """The directory of a sweep.

    Args:
        folder: locked by this process.
        keeps_states: the state before the last is kept, too.
        writer: name of this process, where several write.
    """

    def __init__(
        self, folder: PlanFolder, job: str, mode: str, device: str, keeps_states: bool, writer: str = ""
    ) -> None:
        self.folder, self._job, self._mode, self._device = folder, job, mode, device
        self._keeps_states, self._best_file = keeps_states, f"best-{writer}.pt" if writer else BEST_FILE
        self.changed: Mapping[str, str] = {}  # what differed when the sweep was resumed, as sentences
        self._started: dict[int, Moment] = {}
        self._log = TrialLog(folder.runs / f"trials{f'-{writer}' if writer else ''}.jsonl")
        self._replaced: list[Path] = []  # files of states that records on disk need no more

    def begin(self, asked: Asked) -> None:
        """Write the sweep's file, or compare it with what is asked now.

        Raises:
            InvalidArgument: the directory is of another sweep; the message says in what. Or of an earlier version.
        """
        if next(self.folder.runs.glob(f"trial-*/{RUN_FILE}"), None) is not None:
            raise InvalidArgument(
                f"{self.folder.root} is of an earlier version, which kept its trials in another form: results.load "
                "reads it; to continue, start a new sweep with another out"
            )
        self.folder.identify(*asked)
        self.changed = self.folder.changed
        self.folder.state.update(plan="sweep", status="running")
        self.folder.save()

    def end(self, save: Callable[[Path], None]) -> None:
        """Write the tables of a sweep that has ended, and remove what only a resumed one needs."""
        save(self.folder.root)
        self.clean()
        self.folder.state["status"] = "done"
        self.folder.save()

    def kept(self) -> dict[int, Kept]:
        """Return the trials that an earlier process left, by number."""
        found = {}
        for directory, record in self.folder.finished()[0]:
            details = record.details
            with suppress(KeyError, TypeError, ValueError):
                history = [{name: float(v) for name, v in row.items()} for row in details["history"]]
                states = _states_in(directory)
                failure = record.verdict.failure or ""
                found[int(details["trial"])] = Kept(
                    history, states, record.seconds, failure, record.verdict.message, str(details["status"]),
                    details["earlier"][0][1] if details["earlier"] else details["config"], details["identity"],
                    int(details.get("audits_passed", 0)), record.changed,
                )  # fmt: skip
        return found

    def save_state(self, trial: Trial, state: Any) -> Path | None:
        """Write the state of a trial that may continue, before :meth:`save` tells of it: a kill between them loses
        nothing. Return its file; None without one."""
        directory = self.folder.runs / _folder_of(trial.number)
        before = _states_in(directory)
        path = None if state is None else directory / _file_of(trial)
        if path is not None:
            directory.mkdir(parents=True, exist_ok=True)
            save_tensors(path, load_tensors(state) if isinstance(state, Path) else state)
        self._replaced += [before[epochs] for epochs in before.keys() - self._needed(before, trial, state)]
        return path

    def save(self, trials: Sequence[Trial], metric: str, sign: float, at_once: bool = False) -> None:
        """Write the records of trials, of all or of none where they must be of one moment (`at_once`), and remove
        states that they replace."""
        for trial in trials:
            trial.changed.update(self.changed)
        self._log.add({_folder_of(trial.number): self._record(trial, metric, sign) for trial in trials}, at_once)
        while self._replaced:
            _remove(self._replaced.pop())

    def _needed(self, before: Mapping[int, Path], trial: Trial, state: Any) -> set[int]:
        """Epochs of the states that may be asked for after this one was written.

        Others may take over the state before the last, or that of a trial that has ended, if they are not as far yet.
        """
        if not self._keeps_states:
            return set() if state is None else {trial.trained}
        rungs = sorted(n for n, path in before.items() if n < trial.trained and _UNDER_WAY not in path.name)
        return {trial.trained, *rungs[-2 if trial.status == "running" else -1 :]}

    def states_of(self, trial: int) -> dict[int, Path]:
        """Files of a trial's states by epochs."""
        return _states_in(self.folder.runs / _folder_of(trial))

    def save_best(self, best: Mapping[str, Any], name: str = "") -> None:
        """Write the best weights, and the key by which they are compared, into the file of this name or its own."""
        save_tensors(self.folder.root / (name or self._best_file), dict(best))

    def load_best(self) -> dict[str, Any] | None:
        """Return the best weights that earlier processes left; None without any."""
        found: list[dict[str, Any]] = []
        for path in self.folder.root.glob("best*.pt"):
            with suppress(Exception):  # damaged: found again
                found.append(load_tensors(path))
        return min(found, key=lambda best: tuple(best["key"]), default=None)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        """Fields of every record, which are the same for all trials."""
        found = facts.environment()
        machine, device = facts.machine(found["machine"]), facts.device(self._device, found["machine"])
        return {"machine": machine, "device": device, "versions": found["versions"], "commit": facts.commit()}

    def _record(self, trial: Trial, metric: str, sign: float) -> RunRecord:
        text = as_json(trial.best_config)
        config = json.loads(text)
        failed = trial.status == "failed"
        value, epoch = trial.best
        details = {
            "trial": trial.number,
            "identity": _told(trial.config_at(1)),
            "config": config,
            "earlier": [[last, json.loads(as_json(values))] for last, values in trial.earlier],
            "status": trial.status,
            "epochs": trial.epoch,
            "audits_passed": trial.audits_passed,
            "history": [{name: as_json_value(value) for name, value in row.items()} for row in trial.history],
            "inherited": [list(each) for each in trial.inherited],
        }
        return RunRecord(
            id=new_id(),
            kind="trial",
            plan_id=self.folder.id,
            plan="sweep",
            job=self._job,
            mode=self._mode,
            precision="fp32",
            B=1,
            repeat=0,
            verdict=Verdict.failed(trial.failure or "crash", trial.message) if failed else Verdict.good(),
            started=self._started.setdefault(trial.number, Moment.now()),
            unit="epochs",
            seconds=trial.seconds,
            job_version=hashlib.sha256(text.encode()).hexdigest()[:12],
            seed=trial.seed,
            changed=dict(trial.changed),
            metrics=(Metric(metric, sign * value, "", definition=f"best, of epoch {epoch}"),) if epoch else (),
            asked=config,
            details=details,
            **self._facts,
        )

    def forget(self) -> None:
        """Remove the records, where the weights of the best trial are lost: all are trained again."""
        self._log.forget()

    def clean(self) -> None:
        """Remove states that no trial will continue from, and what dead processes left half-made."""
        self.folder.drop_unfinished()
        for state in self.folder.runs.glob("trial-*/state-*.pt"):
            _remove(state)
        for trial in self.folder.runs.glob("trial-*/"):
            with suppress(OSError):  # a file of somebody else's is in it
                trial.rmdir()


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"cannot remove {path}: {reason(error)}") from error


def _file_of(trial: Trial) -> str:
    """Name the file of a trial's state: one between two rungs is never that of the rung that others may ask for."""
    return f"state-{trial.trained}{_UNDER_WAY if trial.status == 'running' else ''}.pt"


def _folder_of(trial: int) -> str:
    return f"trial-{trial:05d}"


def _states_in(directory: Path) -> dict[int, Path]:
    """Files of states by epochs."""
    return {int(path.stem.split("-")[1]): path for path in directory.glob("state-*.pt")}


def as_json(config: Mapping[str, Any]) -> str:
    """A configuration in JSON; what JSON has not, as a function or infinity, by its name."""
    return json.dumps(_with_texts(config), sort_keys=True, default=named)


def _with_texts(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _with_texts(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_texts(part) for part in value]
    return as_json_value(value) if isinstance(value, float) else value


def _told(config: Mapping[str, Any]) -> str:
    """Identity of a configuration: also of what JSON has not, or gives back as another value."""
    return identity_of({"config": dict(config)}).texts["config"]


def as_json_value(value: float) -> Any:
    """Return a number as JSON keeps it to the last bit; NaN and infinities as texts."""
    return value if value == value and abs(value) != float("inf") else str(value)
