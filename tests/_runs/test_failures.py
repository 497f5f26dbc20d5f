# SPDX-License-Identifier: MIT
import errno
import signal

import pytest

from dnnsuite._runs import failures
from dnnsuite._runs.failures import NotFinite, classify, classify_exit


class OutOfMemoryError(RuntimeError):
    """Named as torch's."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), "oom"),
        (OutOfMemoryError("CUDA"), "oom"),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"),
            "oom",
        ),
        (RuntimeError("CUDA error: out of memory"), "oom"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), "oom"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "oom"),
        (RuntimeError("std::bad_alloc"), "oom"),
        (NotFinite("loss of model 2 is nan"), "nan"),
        (RuntimeError("shape '[2, 3]' is invalid"), "crash"),
        (KeyError("memory"), "crash"),
    ],
)
def test_exceptions(error: BaseException, expected: str) -> None:
    assert classify(error) == expected
    assert expected in failures.CLASSES


@pytest.mark.parametrize(
    ("returncode", "stderr", "kernel_killed", "expected"),
    [
        (-signal.SIGKILL, "", True, "oom"),
        (-signal.SIGKILL, "", False, "killed"),
        (-signal.SIGTERM, "", False, "killed"),
        (-signal.SIGABRT, "terminate called after throwing an instance of 'std::bad_alloc'\n", False, "oom"),
        (-signal.SIGSEGV, "", False, "crash"),
        (1, "OpenBLAS error: Memory allocation still failed after 10 retries, giving up.\n", False, "oom"),
        (1, "ModuleNotFoundError: No module named 'torch'\n", False, "crash"),
        (3, "", False, "crash"),
    ],
)
def test_exits(returncode: int, stderr: str, kernel_killed: bool, expected: str) -> None:
    failure, message = classify_exit(returncode, stderr, kernel_killed)
    assert failure == expected
    assert message


def test_a_full_disk_is_not_a_missing_permission() -> None:
    assert failures.disk_full(OSError(errno.ENOSPC, ""))
    assert failures.disk_full(OSError(errno.EFBIG, ""))
    assert not failures.disk_full(OSError(errno.EACCES, ""))
    assert not failures.disk_full(ValueError())


def test_statuses_are_not_those_of_signals_or_python() -> None:
    assert len({0, failures.RESULT_EXIT, failures.DISK_EXIT}) == 3
    assert failures.DISK_EXIT < 128
