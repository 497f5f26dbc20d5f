# SPDX-License-Identifier: MIT
"""scikit-build-core, which additionally asks for torch, and only when the target has none to build against.

A torch listed in `build-system.requires` would be unpacked again for every installation, and would be another
one than the user's. The operators are built on torch's stable ABI, so any torch in the range will do.
"""

import find_torch
from scikit_build_core import build as _build
from scikit_build_core.build import *  # (the PEP 517 and PEP 660 hooks)

TORCH_REQUIREMENT = "torch==2.13.0"


def _torch_if_missing() -> list[str]:
    return [] if find_torch.find() else [TORCH_REQUIREMENT]


def get_requires_for_build_wheel(config_settings=None):
    return [*_build.get_requires_for_build_wheel(config_settings), *_torch_if_missing()]


def get_requires_for_build_editable(config_settings=None):
    return [*_build.get_requires_for_build_editable(config_settings), *_torch_if_missing()]
