# SPDX-License-Identifier: MIT
"""Files, variables of the environment and settings of torch that decide a run's numbers from outside of its code."""

from __future__ import annotations

import functools
import hashlib
import itertools
import operator
import os
import stat
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from .._files import PLAN_LOCK

_WHOLE_BYTES = 2**28  # of files that are compared to the last byte; of what is more, the size and some blocks are
_BLOCK_BYTES, _BLOCKS = 2**16, 64  # of a file that is larger
_MOST = 10_000  # files that are looked at
_MOST_FOLDERS, _MOST_WORDS, _MOST_TRIED = 50, 10_000, 100_000  # of texts that may name such, and of pairs of them
_LISTING = frozenset(("listdir", "scandir", "glob", "iglob", "rglob", "iterdir", "walk"))
_WRITING = frozenset(("w", "wb", "a", "ab", "write_text", "write_bytes", "save", "savez", "savez_compressed", "savetxt",
                      "savefig", "dump", "to_csv", "to_json", "to_parquet", "mkdir", "makedirs", "touch", "rename",
                      "copyfile", "copytree", "FileHandler"))  # fmt: skip
FOLDER_USES = _LISTING | _WRITING  # names in code by which it may look into folders for files, or write some
# Variables that say where a process runs and which of several it is, and not what it computes.
_OF_A_PLACE = frozenset(
    (
        "RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "HOSTNAME",
        "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "PATH", "PWD", "TMPDIR", "CUDA_VISIBLE_DEVICES",
        "OMP_NUM_THREADS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_JOB_ID",
    )
)  # fmt: skip


def variables_read(names: Iterable[str]) -> tuple[dict[str, str], set[str]]:
    """Return (the environment's variables among the names and texts in code, where that reads any; files they name).

    A text that ends or begins with an underscore may be a part of a name. A value that is a path says where something
    lies, as an output's folder does, and is left out; of a file, the content counts.
    """
    found = set(names)
    if not found & {"environ", "environb", "getenv"}:
        return {}, set()
    begin = tuple(name for name in found if len(name) > 2 and name.endswith("_") and not name.startswith("_"))
    end = tuple(name for name in found if len(name) > 2 and name.startswith("_") and not name.endswith("_"))
    read = {name for name in os.environ if name in found or name.startswith(begin) or name.endswith(end)} - _OF_A_PLACE
    values = {name: os.environ[name] for name in sorted(read)}
    places = {name for name, value in values.items() if _is_place(value)}
    return {name: value for name, value in values.items() if name not in places}, {values[name] for name in places}


def _is_place(value: str) -> bool:
    return value.startswith((os.sep, "~", "." + os.sep, ".." + os.sep)) or (os.sep in value and os.path.exists(value))


def settings_of_torch() -> dict[str, str]:
    """Return settings of torch that decide numbers and are not as torch begins with them, by name."""
    import numpy as np

    torch: Any = sys.modules["torch"]
    backends = torch.backends
    usual: dict[str, tuple[Callable[[], Any], Any]] = {
        "default dtype": (torch.get_default_dtype, torch.float32),
        "default device": (torch.get_default_device, torch.device("cpu")),
        "deterministic algorithms": (torch.are_deterministic_algorithms_enabled, False),
        "float32 matmul precision": (torch.get_float32_matmul_precision, "highest"),
        "cudnn.allow_tf32": (lambda: backends.cudnn.allow_tf32, True),
        "cudnn.conv.fp32_precision": (lambda: backends.cudnn.conv.fp32_precision, "tf32"),
        "cudnn.rnn.fp32_precision": (lambda: backends.cudnn.rnn.fp32_precision, "tf32"),
        "cudnn.enabled": (lambda: backends.cudnn.enabled, True),
        "cudnn.deterministic": (lambda: backends.cudnn.deterministic, False),
        "cudnn.benchmark": (lambda: backends.cudnn.benchmark, False),
        "opt_einsum.enabled": (lambda: backends.opt_einsum.enabled, backends.opt_einsum.is_available()),
        "opt_einsum.strategy": (lambda: backends.opt_einsum.strategy, "auto"),
        "errors of NumPy": (np.geterr, {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}),
        "mkldnn.enabled": (lambda: backends.mkldnn.enabled, True),
        "mkldnn.deterministic": (lambda: backends.mkldnn.deterministic, False),
        "cuda.matmul.allow_fp16_reduced_precision_reduction": (
            lambda: backends.cuda.matmul.allow_fp16_reduced_precision_reduction, True),
        "cuda.matmul.allow_bf16_reduced_precision_reduction": (
            lambda: backends.cuda.matmul.allow_bf16_reduced_precision_reduction, True),
        "cuda.matmul.allow_fp16_accumulation": (lambda: backends.cuda.matmul.allow_fp16_accumulation, False),
        "flash attention": (backends.cuda.flash_sdp_enabled, True),
        "memory efficient attention": (backends.cuda.mem_efficient_sdp_enabled, True),
        "plain attention": (backends.cuda.math_sdp_enabled, True),
        "cudnn attention": (backends.cuda.cudnn_sdp_enabled, True),
        "fast path of attention": (backends.mha.get_fastpath_enabled, True),
        "gradients": (torch.is_grad_enabled, True),
        "flush denormal": (lambda: float(torch.tensor([1e-40], dtype=torch.float32, device="cpu") * 1) == 0.0, False),
    }  # fmt: skip
    for name in ("", "cuda.matmul", "cudnn", "mkldnn", "mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn"):
        place = f"{name}.fp32_precision".lstrip(".")
        usual[place] = functools.partial(operator.attrgetter(place), backends), "none"
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            usual[f"autocast on {device}"] = functools.partial(torch.get_autocast_dtype, device), None
    now = {name: (_asked(value), default) for name, (value, default) in usual.items()}
    return {name: str(value) for name, (value, default) in now.items() if value not in (None, default)}


def compiled_operators(names: Set[str]) -> set[str]:
    """Files of compiled operators that a script has loaded, where code with these names may call one."""
    return set(sys.modules["torch"].ops.loaded_libraries) if "torch" in sys.modules and "ops" in names else set()


def _asked(value: Callable[[], Any]) -> Any:
    """A setting; "mixed" where torch was set in two ways, and None where this torch does not have it."""
    try:
        return value()
    except AttributeError:
        return None
    except RuntimeError:
        return "mixed"


def files_named(names: Iterable[str], uses: Set[str] = frozenset()) -> dict[str, str]:
    """Return size and hash of the files that these texts name, by name; code that was imported is no such file.

    A text may name a file in a folder that another one names. A folder, whose name ends with a separator, has the
    number and hash of its files' names.

    Args:
        uses: names of `FOLDER_USES` in code: if it lists folders, the files in them count, too; if it also writes
            none, so do their names, as a new one is not of its own making.
    """
    found: dict[str, str] = {}
    code = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    left = _WHOLE_BYTES
    single, folders = _candidates(sorted(names))
    listed = {folder: _files_in(folder) for folder in folders[:_MOST_FOLDERS]} if uses & _LISTING else {}
    if not uses & _WRITING:
        found = {os.path.join(folder, ""): _told_of_names(folder, inside) for folder, inside in listed.items()}
    most = _MOST + len(found)
    for name in itertools.chain(single, *listed.values()):
        if len(found) == most:
            break
        try:
            with open(name, "rb", opener=_without_waiting) as file:
                told = os.fstat(file.fileno())
                if not stat.S_ISREG(told.st_mode) or os.path.abspath(name) in code:
                    continue
                whole = told.st_size <= left
                left -= told.st_size if whole else 0
                found[name] = _told_of(name, told.st_size, told.st_mtime_ns, told.st_ino, whole)
        except (OSError, ValueError):
            continue
    return found


def _candidates(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return paths of (files, folders) that the texts may name, by themselves or in a folder."""
    words = [name for name in names if not _is_path(name)][:_MOST_WORDS]
    alone = [name for name in names if _is_path(name)] + words
    folders = [name for name in alone if os.path.isdir(name)]
    inside = [name for name in alone if not os.path.isabs(name)]

    def joined(folders: Sequence[str]) -> list[str]:
        pairs = itertools.product(folders[:_MOST_FOLDERS], inside)
        return [os.path.join(*pair) for pair in itertools.islice(pairs, _MOST_TRIED)]

    nearer = joined(folders)
    deeper = [name for name in nearer if os.path.isdir(name)][:_MOST_FOLDERS]
    return alone + nearer + joined(deeper), folders + deeper


def _files_in(folder: str) -> list[str]:
    """Paths of the files in a folder and below it, without those of runs that are written there."""
    found: list[str] = []
    for place, folders, files in os.walk(folder):
        if PLAN_LOCK in files or len(found) > _MOST_TRIED:  # the files of a run are no data
            folders.clear()
            continue
        folders.sort()
        found += (os.path.join(place, name) for name in sorted(files))
    return found


def _told_of_names(folder: str, files: Sequence[str]) -> str:
    seen = [name for name in (os.path.relpath(file, folder) for file in files) if not name.startswith(".")]
    return f"{len(seen)} files {hashlib.blake2b(os.fsencode(chr(0).join(seen)), digest_size=8).hexdigest()}"


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
    """True for a text that can be the name of a file or a folder."""
    return 2 < len(text) < 4096 and "\n" not in text and "\0" not in text


def _is_path(name: str) -> bool:
    return "." in name or os.sep in name


def changed_files(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the files and folders that are not what they were; a file that is new may be of the run's own making."""
    gone = [name for name in then if name.endswith(os.sep) and not os.path.isdir(name)]
    return [name for name, told in now.items() if then.get(name, told) != told] + gone


def _without_waiting(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for its writer
