# SPDX-License-Identifier: MIT
"""Files, variables of the environment and settings of torch that decide a run's numbers from outside of its code."""

from __future__ import annotations

import functools
import hashlib
import os
import stat
import sys
from collections.abc import Iterable, Mapping
from typing import Any

_WHOLE_BYTES = 2**28  # of files that are compared to the last byte; of what is more, the size and some blocks are
_BLOCK_BYTES, _BLOCKS = 2**16, 64  # of a file that is larger
_MOST = 10_000  # files that are looked at
_OF_CODE = (".py", ".pyc", ".pyi", ".so", ".ipynb")  # compared by what it does
# Variables that say where a process runs and which of several it is, and not what it computes.
_OF_A_PLACE = frozenset(
    (
        "RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "HOSTNAME",
        "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "PATH", "PWD", "TMPDIR", "CUDA_VISIBLE_DEVICES",
        "OMP_NUM_THREADS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_JOB_ID",
    )
)  # fmt: skip


def variables_read(names: Iterable[str]) -> dict[str, str]:
    """Return the environment's variables among the names and texts in code, where that reads any.

    A value that is a path says where something lies, as an output's folder does, and is left out.
    """
    found = set(names)
    if not found & {"environ", "getenv"}:
        return {}
    read = sorted((found & os.environ.keys()) - _OF_A_PLACE)
    return {name: os.environ[name] for name in read if os.sep not in os.environ[name]}


def settings_of_torch() -> dict[str, str]:
    """Return settings of torch that decide numbers and are not as torch begins with them, by name."""
    torch: Any = sys.modules["torch"]
    now = {
        "default dtype": (torch.get_default_dtype(), torch.float32),
        "deterministic algorithms": (torch.are_deterministic_algorithms_enabled(), False),
        "float32 matmul precision": (torch.get_float32_matmul_precision(), "highest"),
        "cudnn.allow_tf32": (torch.backends.cudnn.allow_tf32, True),
        "flush denormal": (float(torch.tensor([1e-40], dtype=torch.float32) * 1) == 0.0, False),
    }
    return {name: str(value) for name, (value, usual) in now.items() if value != usual}


def files_named(names: Iterable[str]) -> dict[str, str]:
    """Return size and hash of the files among these texts, by name; code is no such file."""
    found: dict[str, str] = {}
    left = _WHOLE_BYTES
    for name in sorted(names):
        if len(found) == _MOST:
            break
        try:
            with open(name, "rb", opener=_without_waiting) as file:
                told = os.fstat(file.fileno())
                if not stat.S_ISREG(told.st_mode):
                    continue
                whole = told.st_size <= left
                left -= told.st_size if whole else 0
                found[name] = _told_of(name, told.st_size, told.st_mtime_ns, told.st_ino, whole)
        except (OSError, ValueError):
            continue
    return found


@functools.lru_cache(maxsize=_MOST)
def _told_of(name: str, size: int, changed_ns: int, number: int, whole: bool) -> str:
    hashed = hashlib.blake2b(digest_size=8)
    with open(name, "rb") as file:
        if whole:
            while block := file.read(2**20):
                hashed.update(block)
        else:
            for each in range(_BLOCKS + 1):
                file.seek((size - _BLOCK_BYTES) * each // _BLOCKS)
                hashed.update(file.read(_BLOCK_BYTES))
    return f"{size} bytes {hashed.hexdigest()}"


def may_name_a_file(text: str) -> bool:
    """True for a text that can be the name of a file of data."""
    return 2 < len(text) < 4096 and ("." in text or os.sep in text) and "\n" not in text and not text.endswith(_OF_CODE)


def changed_files(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the files that are not what they were; one that is new is of the run's own making, as a log."""
    return [name for name, told in now.items() if then.get(name, told) != told]


def _without_waiting(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for its writer
