# SPDX-License-Identifier: MIT
"""Checkpoints: the whole state of a run in one file, whole or absent, read without unpickling objects."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from .._saved import load_tensors, save_tensors
from ..errors import Error

__all__ = [
    "BEST", "CHECKPOINT", "BadCheckpoint", "check_fits", "load_model", "random_state", "read_checkpoint",
    "save_checkpoint", "set_random_state",
]  # fmt: skip

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
