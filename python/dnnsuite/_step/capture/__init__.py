# SPDX-License-Identifier: MIT
"""Training steps without Python: recorded once, then run as a list of operators or as a CUDA graph."""

from .comparison import Audit
from .cuda import CudaDevice, CudaGraphs
from .guards import remembers
from .library import Recordings
from .python_state import NotPlain, PythonState
from .script import Scripts
from .step import CapturedStep

__all__ = [
    "Audit", "CapturedStep", "CudaDevice", "CudaGraphs", "NotPlain", "PythonState", "Recordings", "Scripts",
    "remembers",
]  # fmt: skip
