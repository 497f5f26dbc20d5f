# SPDX-License-Identifier: MIT
"""Tensors in a file: whole or absent, on the disk when it has its name, and an error that names it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from ._files import replacing


def save_tensors(path: Path, state: Any) -> None:
    """Write tensors, numbers, texts, and lists and dicts of them, whole or not at all.

    Raises:
        OutputError: the disk is full, say; a file that was there before stays.
    """
    with replacing(path) as temporary, open(temporary, "wb") as file:
        try:
            torch.save(state, file)
        except RuntimeError as error:  # torch's writer tells of a full disk so
            raise OSError(f"{error}".splitlines()[0]) from error
        file.flush()
        os.fsync(file.fileno())
