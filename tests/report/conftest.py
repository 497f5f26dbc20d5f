# SPDX-License-Identifier: MIT
from report_runs import mila_tree, suite  # noqa: F401  (fixtures)
