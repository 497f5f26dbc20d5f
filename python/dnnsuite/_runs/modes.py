# SPDX-License-Identifier: MIT
"""Names of the ways in which models share a device, in the order of tables and figures."""

MODES = ("serial", "concurrent", "mps", "mig", "hfta")
