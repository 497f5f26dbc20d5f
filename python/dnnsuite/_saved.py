# SPDX-License-Identifier: MIT
"""Tensors in a file: whole or absent, on the disk when it has its name, and read back to the bit or not at all."""

from __future__ import annotations

import os
import zipfile
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
        except RuntimeError as error:  # torch's writer fails when it closes a file that is not whole, and says so
            first: BaseException | None = error
            while first is not None and not isinstance(first, OSError):
                first = first.__cause__ or first.__context__
            raise first or OSError(f"{error}".splitlines()[0]) from None
        file.flush()
        os.fsync(file.fileno())


def load_tensors(path: Path, device: torch.device | str = "cpu") -> Any:
    """Return what :func:`save_tensors` wrote, compared with the checksums in the file, which torch does not look at.

    Raises:
        OSError: the file cannot be read.
        Exception: it is damaged; torch's loader has many kinds of errors.
    """
    try:
        with zipfile.ZipFile(path) as parts:
            damaged = parts.testzip()
    except OSError:
        raise
    except Exception as error:  # also of struct and zlib
        raise ValueError(f"it is damaged: {error}") from error
    if damaged is not None:
        raise ValueError(f"it is damaged: {damaged} is not what was written")
    return torch.load(path, map_location=device, weights_only=True)
