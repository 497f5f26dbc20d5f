# SPDX-License-Identifier: MIT
"""What everything that runs jobs in processes of their own needs: signals, limits, classes of failure, a record."""
