# SPDX-License-Identifier: MIT
"""Samples of GPUs from NVIDIA's driver: utilisation, memory, power, clocks, temperature and processes.

No permission is needed. From Hopper on, the use of the SMs' pipes is sampled too (GPM).
"""

from ._gpu_state import SLOWED, NvmlInstrument, decode_reasons

__all__ = ["SLOWED", "NvmlInstrument", "decode_reasons"]
