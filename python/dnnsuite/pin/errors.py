# SPDX-License-Identifier: MIT
"""Errors of pinning; each says what to do. Those of control groups are raised by C++ (`cpp/host`)."""

from __future__ import annotations

import os

from ..errors import Error, InvalidArgument, Unavailable


class CgroupError(Error):
    """Raised when the kernel refuses an operation on a control group.

    Args:
        operation: the operation that failed.
        path: the file or folder.
        value: the value that was to be written; empty if there was none.
        errno: the kernel's reason; 0 if it gave none.
        hint: advice on what to do.
    """

    def __init__(self, operation: str, path: str = "", value: str = "", errno: int = 0, hint: str = "") -> None:
        self.operation, self.path, self.value, self.errno, self.hint = operation, path, value, errno, hint
        super().__init__(operation, path, value, errno, hint)  # the arguments again, so that it survives pickling

    def __str__(self) -> str:
        value = f" '{self.value}'" if self.value else ""
        path = f" {self.path}" if self.path else ""
        reason = f": {os.strerror(self.errno)}" if self.errno else ""
        return f"control group: {self.operation}{value}{path}{reason}{'; ' if self.hint else ''}{self.hint}"


class CgroupNotMounted(CgroupError):
    """Raised when no control groups are mounted."""


class ControllerUnavailable(CgroupError):
    """Raised when no usable hierarchy has a controller; the path is the group at which it is missing."""


class CgroupReadOnly(CgroupError):
    """Raised when the control groups are mounted read-only, as in containers."""


class CgroupPermissionDenied(CgroupError):
    """Raised when the group does not belong to this user."""


class CgroupBusy(CgroupError):
    """Raised when processes are in the way; the hint names them."""


class InvalidDomain(CgroupError):
    """Raised when the group, or one above it, is threaded and so accepts no process."""


class CpusetNotEffective(CgroupError):
    """Raised when the kernel accepted a list of CPUs or nodes, but granted others."""


class PartitionInvalid(CgroupError):
    """Raised when the kernel did not make a partition of the CPUs; the value is its answer."""


class CpusetEmpty(CgroupError):
    """Raised when a process is to enter a cpuset that has no CPUs or no memory nodes."""


class LimitRejected(CgroupError):
    """Raised when the kernel refuses a limit, or sets a different one."""


class LimitBelowUsage(CgroupError):
    """Raised when a limit is below what the group already uses."""


class CgroupExists(CgroupError):
    """Raised when a group of this name already exists, perhaps left by another run."""


class LaunchError(CgroupError):
    """Raised when a command could not be started in its group; the operation is the stage that failed."""


class NotEnoughCpus(InvalidArgument):
    """Raised when there are fewer whole cores than shares."""


class SmtSplit(NotEnoughCpus):
    """Raised when there are enough threads for the shares, but not enough whole cores."""


class NotEnoughMemory(InvalidArgument):
    """Raised when the reserve leaves nothing for the shares."""


class HeterogeneousCpus(InvalidArgument):
    """Raised when the machine has cores of several kinds, so that equal numbers of cores are not equal shares."""


class PinningTooWeak(Unavailable):
    """Raised when `require` asks for more isolation than this machine grants."""
