# SPDX-License-Identifier: MIT
"""Profile a job, its sizes, or a script, in a process of its own."""
