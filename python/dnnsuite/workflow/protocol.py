# SPDX-License-Identifier: MIT
"""What a workflow, its worker processes and its readers have agreed on."""

__all__ = ["GO_FD", "READY_FD", "WORKFLOW_FILE"]

WORKFLOW_FILE = "workflow.json"

# Environment variables with the file descriptors of two pipes: a worker writes a byte when it is set up, and
# reads one to begin.
READY_FD = "DNNSUITE_READY_FD"
GO_FD = "DNNSUITE_GO_FD"
