# SPDX-License-Identifier: MIT
"""Look up torch's private names, each once, and keep a list of those that this torch does not have."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import torch

from .names import ATTRIBUTES, NAMES


def find(dotted: str) -> Any:
    """Return the object behind a dotted name of torch; None where there is none."""
    found: Any = torch
    path = "torch"
    for part in dotted.split(".")[1:]:
        path = f"{path}.{part}"
        try:
            found = getattr(found, part)
        except (AttributeError, RuntimeError):  # an operator that is not there is a RuntimeError in some versions
            found = sys.modules.get(path)  # torch.optim hides its module `optimizer`
            if found is None:
                return None
    return found


missing: dict[str, list[str]] = {}  # what a name is for → which of its names are not there


def get(key: str) -> list[Any]:
    """Return the objects of `NAMES[key]` in order, or the first there is if any one serves; empty if lost."""
    names = NAMES[key].names
    found = {name: find(name) for name in names}
    there = [value for value in found.values() if value is not None]
    absent = [name for name, value in found.items() if value is None]
    if not absent or (NAMES[key].any_of and there):
        return there[:1] if NAMES[key].any_of else there
    missing[key] = absent
    return []


def one(key: str, instead: Any) -> Any:
    """Return the object of `NAMES[key]`, or `instead` where it is lost."""
    return (get(key) or [instead])[0]


def note_lost(key: str) -> None:
    """Note that the names of `NAMES[key]` exist but behave otherwise than before."""
    missing[key] = list(NAMES[key].names)


def _bare_optimizer() -> torch.optim.Optimizer:
    """Return an optimizer without parameters, made as unpickling makes it: giving one parameters imports torch's
    compiler, which takes longer than importing torch."""
    optimizer = torch.optim.Optimizer.__new__(torch.optim.SGD)
    torch.optim.Optimizer.__setstate__(optimizer, {"defaults": {}})
    return optimizer


def _lost_attributes() -> dict[str, list[str]]:
    """Attributes of `ATTRIBUTES` that are not there, by what needs them."""
    samples: dict[str, Any] = {"torch.nn.Module": torch.nn.Module()}
    with contextlib.suppress(Exception):
        samples["torch.distributions.Distribution"] = torch.distributions.Distribution(validate_args=False)
        samples["torch.optim.Optimizer"] = _bare_optimizer()
    found: dict[str, list[str]] = {}
    for each in ATTRIBUTES:
        owner = samples.get(each.owner) or find(each.owner)
        for name in each.names:
            try:
                getattr(owner, name)
            except AttributeError:
                found.setdefault(each.needed_by, []).append(f"{each.owner}.{name}")
    return found


_attributes = _lost_attributes()


def reason_against(*needed_by: str) -> str | None:
    """Name in a sentence what is lost of all that something needs; None where all is there."""
    names = [name for key, absent in missing.items() if NAMES[key].needed_by in needed_by for name in absent]
    names += [name for key in needed_by for name in _attributes.get(key, ())]
    return f"torch {torch.__version__} has no {', '.join(names)}" if names else None


def lost() -> list[tuple[str, str]]:
    """List (name, what is done without it) for every private name that this torch does not have."""
    found = [(name, NAMES[key].without) for key, absent in missing.items() for name in absent]
    consequence = {
        "fuse": "fuse refuses models",
        "capture": "steps run without capture",
        "": "an error where it is used",
    }
    return found + [(name, consequence[key]) for key, names in _attributes.items() for name in names]
