# SPDX-License-Identifier: MIT
import errno
import signal

import pytest

from dnnsuite._runs import failures
from dnnsuite._runs.failures import FINAL, KernelKill, NotFinite, classify, classify_exit
from dnnsuite.errors import BadData, InvalidArgument, Unavailable


class OutOfMemoryError(RuntimeError):
    """Named as torch's."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), "oom"),
        (OutOfMemoryError("CUDA"), "oom"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"), "oom"),
        (RuntimeError("CUDA error: out of memory"), "oom"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), "oom"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "oom"),
        (RuntimeError("std::bad_alloc"), "oom"),
        (NotFinite("loss of model 2 is nan"), "nan"),
        (RuntimeError("shape '[2, 3]' is invalid"), "crash"),
        (KeyError("memory"), "crash"),
        (InvalidArgument("a batch of 1 samples has no 2 equal parts"), "refused"),
        (BadData("a.bin is not a shard of tokens"), "data"),
        (StopIteration(), "data"),
        (OSError("image file is truncated (12 bytes not processed)"), "data"),
        (Unavailable("no gymnasium", "", "pip install it"), "unavailable"),
        (ModuleNotFoundError("No module named 'torchvision'"), "unavailable"),
    ],
)
def test_exceptions(error: BaseException, expected: str) -> None:
    assert classify(error) == expected
    assert expected in failures.CLASSES


@pytest.mark.parametrize(
    ("returncode", "stderr", "kill", "expected"),
    [
        (-signal.SIGKILL, "", KernelKill(), "oom"),
        (-signal.SIGKILL, "", KernelKill("", 100, 1000), "contaminated"),
        (-signal.SIGKILL, "", None, "killed"),
        (-signal.SIGTERM, "", None, "killed"),
        (-signal.SIGABRT, "terminate called after throwing an instance of 'std::bad_alloc'\n", None, "oom"),
        (-signal.SIGSEGV, "", None, "crash"),
        (1, "OpenBLAS error: Memory allocation still failed after 10 retries, giving up.\n", None, "oom"),
        (1, "ImportError: cannot import name 'x'\n", None, "crash"),
        (3, "", None, "crash"),
        (0, "", None, "crash"),
    ],
)
def test_exits(returncode: int, stderr: str, kill: KernelKill | None, expected: str) -> None:
    failure, message = classify_exit(returncode, stderr, kill)
    assert failure == expected
    assert message


@pytest.mark.parametrize(
    ("kill", "own"),
    [
        (KernelKill("group", 10, 1000), True),
        (KernelKill("outside", 900, 1000), False),
        (KernelKill("unknown", 900, 1000), True),
        (KernelKill("unknown", 100, 1000), False),  # 115 MB of the machine's memory filled nothing
        (KernelKill("unknown", 0, 1000), True),  # what it had is not known
        (KernelKill("unknown", 100, None), True),
    ],
)
def test_memory_that_others_took_is_told_apart(kill: KernelKill, own: bool) -> None:
    assert kill.own is own
    failure, message = kill.verdict()
    assert failure == ("oom" if own else "contaminated")
    assert (failure in FINAL) is own
    assert "MiB" in message


def test_a_full_disk_is_not_a_missing_permission() -> None:
    assert failures.disk_full(OSError(errno.ENOSPC, ""))
    assert failures.disk_full(OSError(errno.EFBIG, ""))
    assert not failures.disk_full(OSError(errno.EACCES, ""))
    assert not failures.disk_full(ValueError())


def test_statuses_are_not_those_of_signals_or_python() -> None:
    assert len({0, failures.RESULT_EXIT, failures.DISK_EXIT}) == 3
    assert failures.DISK_EXIT < 128
