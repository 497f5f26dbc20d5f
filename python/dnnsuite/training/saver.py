# SPDX-License-Identifier: MIT
"""Files that a run is resumed from: the checkpoint, the best model's, and of an array those of each model.

A checkpoint is the whole state of a run in one file, whole or absent, read without unpickling objects.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from .._files import OutputError
from .._runs.identity import Identity, check_same
from .._saved import load_tensors, save_tensors
from .._seeds import seed_all
from ..errors import Error
from .history import MODEL, Position

if TYPE_CHECKING:
    from .array import ExperimentArray
    from .array_stepper import Alone, ArrayStepper
    from .experiment import Experiment
    from .processes import Processes
    from .stepper import Stepper

CHECKPOINT, BEST = "checkpoint.pt", "best.pt"
FORMAT, VERSION = "dnnsuite training", 1

State = dict[str, Any]


class BadCheckpoint(Error):
    """Raised for a checkpoint that is damaged, or that belongs to something else."""


def save_checkpoint(path: Path, state: State) -> None:
    """Write a checkpoint whole or not at all; it is on the disk when this returns.

    Args:
        state: tensors, numbers, texts, and lists and dicts of them.

    Raises:
        OutputError: the disk is full, say; the checkpoint that was there before stays.
    """
    save_tensors(path, {"format": FORMAT, "version": VERSION, **state})


def read_checkpoint(path: Path, device: torch.device | str = "cpu") -> State:
    """Return the state in a file.

    Raises:
        BadCheckpoint: it is missing, damaged, or no checkpoint of a training run; the message names it.
    """
    try:
        state = load_tensors(path, device)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise BadCheckpoint(f"{path} cannot be read as a checkpoint: {_first_line(error)}") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise BadCheckpoint(f"{path} is not a checkpoint of a training run")
    if state["version"] > VERSION:
        raise BadCheckpoint(f"{path} is of version {state['version']}, newer than {VERSION}: upgrade dnnsuite")
    return state


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def load_model(path: str | Path, model: nn.Module) -> nn.Module:
    """Load the parameters and buffers in a checkpoint into `model`, and return it.

    Args:
        path: checkpoint.pt or best.pt of a run.
        model: module of the same architecture.

    Raises:
        BadCheckpoint: the file is damaged, or belongs to another model; `model` is not changed.
    """
    state = read_checkpoint(Path(path))
    check_fits(Path(path), state, model)
    model.load_state_dict(state["model"])
    return model


def check_fits(path: Path, state: State, model: nn.Module) -> None:
    """Compare a checkpoint's parameters with a model's.

    Raises:
        BadCheckpoint: a name or a shape differs; the first is named.
    """
    own, saved = model.state_dict(), state["model"]
    for name in [*own, *saved]:
        if name not in saved or name not in own:
            where = "this model" if name in own else "the checkpoint"
            raise BadCheckpoint(f"{path} is of another model: only {where} has {name}")
        if own[name].shape != saved[name].shape:
            shapes = f"{list(saved[name].shape)}, {list(own[name].shape)} in this model"
            raise BadCheckpoint(f"{path} is of another model: {name} has the shape {shapes}")


def random_state(device: torch.device) -> State:
    """Return the generators of this process that a model may draw from, as a checkpoint holds them."""
    name, keys, place, has_gauss, gauss = np.random.get_state()
    state: State = {
        "torch": torch.get_rng_state(),
        "numpy": [
            str(name), torch.from_numpy(np.array(keys, np.int64)), int(place), int(has_gauss), float(gauss),
        ],
        "python": _listed(random.getstate()),
    }  # fmt: skip
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: State, device: torch.device) -> None:
    """Put back what :func:`random_state` took."""
    torch.set_rng_state(state["torch"].cpu())
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.cpu().numpy().astype(np.uint32), *rest))
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"].cpu(), device)


def _listed(state: Any) -> list[Any]:
    version, numbers, gauss = state
    return [version, list(numbers), gauss]


MODELS_FOLDER = "models"
# Parts that are of no account to the state of optimizer and schedule.
_OF_STATE = {"model", "loss", "metrics", "data", "validation data", "versions", "samples", "classes", "seed"}


def refuse_array(path: Path, state: State) -> None:
    """Refuse the checkpoint of an array where that of one model is wanted.

    Raises:
        BadCheckpoint: it is one; the message names a file of one model.
    """
    if "members" in state:
        raise BadCheckpoint(
            f"{path} is of an array of {len(state['identity']['models'])} models: give the same --vary, or take one "
            f"model's, {path.parent / MODELS_FOLDER / '0' / CHECKPOINT}"
        )


class _Savers:
    """Base of the savers of one model and of an array.

    Attributes:
        changed: differences when the run was resumed, as sentences by name.

    Args:
        experiments: those of each model.
        folder: directory of the run; None in processes that write nothing.
    """

    def __init__(self, experiments: Sequence[Experiment], folder: Path | None) -> None:
        self._experiments, self._folder = experiments, folder
        self.changed: dict[str, str] = {}

    @cached_property
    def _identities(self) -> list[Identity]:
        arrays: dict[int, Any] = {}
        return [each.whole_identity(arrays) for each in self._experiments]

    @property
    def unknown(self) -> list[str]:
        """Values that decide the numbers and cannot be compared when the run is resumed."""
        return list(dict.fromkeys(told for each in self._identities for told in each.unknown))

    def last(self, model: int) -> Path | None:
        """Return the last checkpoint that was written of a model."""
        path = self._of_model(model, CHECKPOINT)
        return path if path is not None and path.is_file() else None

    def _of_model(self, model: int, name: str) -> Path | None:
        return self._folder / name if self._folder else None

    def _place_of(self, model: int, at: Position, totals: Sequence[float], random: Sequence[State]) -> State:
        """Return what a checkpoint of one model has beside the model's own state."""
        return {
            "random": random,
            "position": at.of_model(model),
            "totals": list(totals),
            "identity": self._identities[model].to_dict(),
            "changed": dict(self.changed),
        }


class Saver(_Savers):
    """Checkpoints of a run of one model."""

    def __init__(self, experiment: Experiment, stepper: Stepper, processes: Processes, folder: Path | None) -> None:
        super().__init__([experiment], folder)
        self._stepper, self._processes = stepper, processes

    def save(self, at: Position, totals: Sequence[Sequence[float]]) -> None:
        """Write the checkpoint; every process takes part."""
        own = self._processes.total(totals[0])
        random = self._processes.gathered(random_state(self._processes.device))
        state: State = self._stepper.state()
        if self._folder is not None:
            save_checkpoint(self._folder / CHECKPOINT, state | self._place_of(0, at, own, random))

    def save_best(self, slot: int, epoch: int, valid: Mapping[str, float]) -> None:
        """Write the model to its own file, as the best so far; every process takes part."""
        state = {**self._stepper.model_state(slot), "epoch": epoch, "valid": dict(valid)}
        if self._folder is not None:
            save_checkpoint(self._folder / BEST, state)

    def load(self, path: Path, state: State, allowed: Sequence[str] = ()) -> tuple[Position, list[list[float]]]:
        """Continue where a checkpoint was written: (place, totals of each model).

        Raises:
            BadCheckpoint: it is of another model. InvalidArgument: other settings than those `allowed` differ.
        """
        refuse_array(path, state)
        check_fits(path, state, self._stepper.model)
        new = check_same(path, state["identity"], self._identities[0], allowed)
        self.changed = dict(state.get("changed", {})) | new
        at = Position.from_state(state["position"])
        self._stepper.load(state, _losses(at) if new.keys() - _OF_STATE else None)
        own, mine = self._processes.rank, list(state["totals"])
        if own < len(state["random"]):
            set_random_state(state["random"][own], self._processes.device)
        else:
            seed_all(self._experiments[0].seed + own + at.step)
        return at, [mine if self._processes.first else [0.0] * len(mine)]


class ArraySaver(_Savers):
    """Checkpoints of an array: one of all models, to continue from, and one of each model, as its own run writes.

    Attributes:
        ended: models that have ended before the others, by number, with the reason.
        alone: measurements of the speedup.
    """

    def __init__(
        self,
        experiment: ExperimentArray,
        stepper: ArrayStepper,
        alone: Alone,
        device: torch.device,
        folder: Path | None,
    ) -> None:
        super().__init__(experiment.experiments, folder)
        self._stepper, self._device, self.alone = stepper, device, alone
        self.ended: dict[int, str] = {}

    def _of_model(self, model: int, name: str) -> Path | None:
        return self._folder / MODELS_FOLDER / str(model) / name if self._folder else None

    def save(self, at: Position, totals: Sequence[Sequence[float]]) -> None:
        """Write the checkpoint of each model, then that of all."""
        if self._folder is None:
            return
        random = [random_state(self._device)]
        state: State = {
            **self._stepper.state(),
            "numbers": list(self._stepper.numbers),
            "ended": dict(self.ended),
            "pairs": [list(pair) for pair in self.alone.pairs],
            "random": random,
            "position": at.of_all(),
            "totals": [list(each) for each in totals],
            "identity": {"models": [each.to_dict() for each in self._identities]},
            "changed": dict(self.changed),
        }
        for slot, model in enumerate(self._stepper.numbers):
            own = self._place_of(model, at, totals[slot], random)
            self._write(model, CHECKPOINT, self._stepper.model_state(slot) | own)
        save_checkpoint(self._folder / CHECKPOINT, state)  # last: it says that the others are of this moment

    def save_best(self, slot: int, epoch: int, valid: Mapping[str, float]) -> None:
        """Write a model to its own file, as its best so far."""
        state = {"model": self._stepper.model_state(slot)["model"], "epoch": epoch, "valid": dict(valid)}
        self._write(self._stepper.numbers[slot], BEST, state)

    def _write(self, model: int, name: str, state: State) -> None:
        path = self._of_model(model, name)
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot write {path.parent}: {error.strerror}") from error
        save_checkpoint(path, state)

    def load(self, path: Path, state: State, allowed: Sequence[str] = ()) -> tuple[Position, list[list[float]]]:
        """Continue where a checkpoint was written: (place, totals of each model that continues).

        Raises:
            BadCheckpoint: it is of one model, or of another one. InvalidArgument: it was made with other settings than
                those `allowed`.
        """
        now = self._experiments
        if "members" not in state:
            raise BadCheckpoint(f"{path} is of one model, not of an array of {len(now)}: leave out --vary")
        then = state["identity"]["models"]
        if len(then) != len(now):
            raise BadCheckpoint(f"{path} is of an array of {len(then)} models, and this one has {len(now)}")
        self.changed = dict(state.get("changed", {}))
        new: set[str] = set()
        for model, (old, own) in enumerate(zip(then, self._identities, strict=True)):
            found = check_same(path, old, own, allowed, f" of model {model}")
            self.changed |= {f"{name} of model {model}": sentence for name, sentence in found.items()}
            new |= found.keys()
        self._stepper.drop(slot for slot in self._stepper.numbers if slot not in state["numbers"])
        check_fits(path, state, self._stepper.model)
        at = Position.from_state(state["position"])
        self._stepper.load(state, _losses(at) if new - _OF_STATE else None)
        self.ended = dict(state["ended"])
        self.alone.pairs = [(alone, array) for alone, array in state["pairs"]]
        set_random_state(state["random"][0], self._device)
        return at, [list(each) for each in state["totals"]]


def _losses(at: Position) -> dict[int, list[float]]:
    """Validation losses of the epochs so far, by model."""
    found: dict[int, list[float]] = {}
    for row in at.history:
        found.setdefault(int(row.get(MODEL, 0)), []).append(row["loss/valid"])
    return found
