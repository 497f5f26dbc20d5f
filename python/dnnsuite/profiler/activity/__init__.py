# SPDX-License-Identifier: MIT
"""CUPTI's activity records: work of the GPU, its duration and idle gaps, and functions of their tables.

>>> instrument = ActivityInstrument()       # doctest: +SKIP
>>> instrument.open(); instrument.start()   # doctest: +SKIP
>>> train_step(); instrument.stop()         # doctest: +SKIP
>>> tables = instrument.tables()            # doctest: +SKIP
>>> utilization(tables["kernels"], instrument.windows, overhead=tables["overhead"])  # doctest: +SKIP

The analyses take any tables of the same columns: recorded elsewhere, imported, or written by hand.
"""

from ._gpu_work import ActivityInstrument, nvtx_environment, variables_for_markers
from ._utilization import (
    analyse,
    by_call,
    by_class,
    by_copy,
    by_kernel,
    by_range,
    by_span,
    corrected_utilization_pct,
    exposed_communication,
    utilization,
)
from .intervals import attribute, host_bound, idle_gaps, innermost, known_share, with_launches
from .tables import CLASSES, TABLES, ActivityRecording, Recording, classify, classify_names, load_records

__all__ = [
    "CLASSES", "TABLES", "ActivityInstrument", "ActivityRecording", "Recording", "analyse", "attribute", "by_call",
    "by_class", "by_copy", "by_kernel", "by_range", "by_span",
    "classify", "classify_names", "corrected_utilization_pct", "exposed_communication", "host_bound", "idle_gaps",
    "innermost", "known_share", "load_records", "nvtx_environment", "utilization",
    "variables_for_markers", "with_launches",
]  # fmt: skip
