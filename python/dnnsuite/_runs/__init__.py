# SPDX-License-Identifier: MIT
"""The engine under every plan of runs: workers in processes of their own, signals, limits, failures, records."""
