# SPDX-License-Identifier: MIT
"""What a workflow and its worker processes have agreed on."""

__all__ = ["DISK_EXIT", "GO_FD", "READY_FD", "RESULT_EXIT"]

# Environment variables with the file descriptors of two pipes: a worker writes a byte when it is set up, and
# reads one to begin.
READY_FD = "DNNSUITE_READY_FD"
GO_FD = "DNNSUITE_GO_FD"

RESULT_EXIT = 1  # a worker that failed and wrote why
DISK_EXIT = 74  # a worker that could not write its results (EX_IOERR of <sysexits.h>)
