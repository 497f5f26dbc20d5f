# SPDX-License-Identifier: MIT
"""`torch.nn.functional` for an array: the same names, arguments and defaults, and every tensor `[B, ...]`.

B is what dimension 0 of the tensors says, so a function serves an array and any part of it.
"""

from .loss import cross_entropy as cross_entropy

__all__ = ["cross_entropy"]
