# SPDX-License-Identifier: MIT
"""Samples of GPUs from NVIDIA's driver: utilisation, memory, power, clocks, temperature, processes.

Needs no rights and, from Hopper on, shows the pipes of the SMs too (GPM).
"""

from ._gpu_state import SLOWED, NvmlInstrument, decode_reasons

__all__ = ["SLOWED", "NvmlInstrument", "decode_reasons"]
