# SPDX-License-Identifier: MIT
"""Errors of pinning, each with the way out. Those of control groups are raised by C++ (`cpp/host`)."""

from __future__ import annotations

import os

from ..errors import Error, InvalidArgument, Unavailable

__all__ = [
    "CgroupBusy", "CgroupError", "CgroupExists", "CgroupNotMounted", "CgroupPermissionDenied", "CgroupReadOnly",
    "ControllerUnavailable", "CpusetEmpty", "CpusetNotEffective", "HeterogeneousCpus", "InvalidDomain", "LaunchError",
    "LimitBelowUsage", "LimitRejected", "NotEnoughCpus", "NotEnoughMemory", "PartitionInvalid", "PinningTooWeak",
    "SmtSplit",
]  # fmt: skip


class CgroupError(Error):
    """The kernel refused something about a control group.

    Args:
        operation: what was tried.
        path: the file or folder.
        value: what was to be written; empty when nothing was.
        errno: the kernel's reason, 0 when it gave none.
        hint: the way out.
    """

    def __init__(
        self, operation: str, path: str = "", value: str = "", errno: int = 0, hint: str = ""
    ) -> None:
        self.operation, self.path, self.value, self.errno, self.hint = operation, path, value, errno, hint
        super().__init__(
            operation, path, value, errno, hint
        )  # the arguments again, so that it survives pickling

    def __str__(self) -> str:
        value = f" '{self.value}'" if self.value else ""
        path = f" {self.path}" if self.path else ""
        reason = f": {os.strerror(self.errno)}" if self.errno else ""
        return f"control group: {self.operation}{value}{path}{reason}{'; ' if self.hint else ''}{self.hint}"


class CgroupNotMounted(CgroupError):
    """Raised when no control groups are mounted."""


class ControllerUnavailable(CgroupError):
    """A controller is in no hierarchy that can be used; the path is where it stops."""


class CgroupReadOnly(CgroupError):
    """The control groups are mounted read-only, as containers have them."""


class CgroupPermissionDenied(CgroupError):
    """The group is not this user's."""


class CgroupBusy(CgroupError):
    """Processes are in the way; the hint names them."""


class InvalidDomain(CgroupError):
    """The group, or one above it, is threaded, so that no process can be put into it."""


class CpusetNotEffective(CgroupError):
    """The kernel took a list of CPUs or nodes and gave other ones."""


class PartitionInvalid(CgroupError):
    """The kernel did not make the CPUs a partition of their own; the value is what it says instead."""


class CpusetEmpty(CgroupError):
    """A process was to enter a cpuset that has no CPUs or no memory nodes."""


class LimitRejected(CgroupError):
    """A limit is not one that the kernel takes, or it took another one."""


class LimitBelowUsage(CgroupError):
    """A limit below what the group already uses."""


class CgroupExists(CgroupError):
    """A group of this name is there already, left by another run perhaps."""


class LaunchError(CgroupError):
    """A command could not be started in its group; the operation is the stage at which it failed."""


class NotEnoughCpus(InvalidArgument):
    """Raised when there are fewer whole cores than shares."""


class SmtSplit(NotEnoughCpus):
    """Raised when there are enough threads for the shares, but not enough whole cores."""


class NotEnoughMemory(InvalidArgument):
    """Raised when the reserve leaves nothing for the shares."""


class HeterogeneousCpus(InvalidArgument):
    """The cores are of several kinds, so that equal counts are not equal shares."""


class PinningTooWeak(Unavailable):
    """`require` asks for more than this machine grants."""
