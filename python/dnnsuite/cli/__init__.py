# SPDX-License-Identifier: MIT
"""The command `dnnsuite`."""
