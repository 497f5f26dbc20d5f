# SPDX-License-Identifier: MIT
"""scikit-build-core, which additionally asks for torch, and only when the target has none to build against.

A torch listed in `build-system.requires` would be unpacked again for every installation, and would be another
one than the user's. The operators are built on torch's stable ABI, so any torch in the range will do.
"""

import find_torch
import torch_requirements
from scikit_build_core import build as _build
from scikit_build_core.build import *  # (the PEP 517 and PEP 660 hooks)


def _torch_if_missing() -> list[str]:
    return [] if find_torch.find() else [torch_requirements.TO_BUILD_WITH]


def get_requires_for_build_wheel(config_settings=None):
    return [*_build.get_requires_for_build_wheel(config_settings), *_torch_if_missing()]


def get_requires_for_build_editable(config_settings=None):
    return [*_build.get_requires_for_build_editable(config_settings), *_torch_if_missing()]
