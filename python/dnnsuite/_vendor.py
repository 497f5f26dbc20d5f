# SPDX-License-Identifier: MIT
"""Where NVIDIA's libraries lie: the folders of the pip wheels and of the toolkit, told to the loader in C++ once."""

from __future__ import annotations

import functools
import importlib.util
import os
from pathlib import Path

from ._C import add_library_folder

__all__ = ["folders", "look_in_wheels"]


def folders() -> list[Path]:
    """Existing folders with vendors' libraries: wheels (`nvidia/*/lib`) first, then `$CUDA_HOME` and its like."""
    spec = importlib.util.find_spec("nvidia")
    wheels = [Path(root) for root in spec.submodule_search_locations or []] if spec else []
    found = [folder for root in wheels for folder in sorted(root.glob("*/lib"))]
    toolkits = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    for toolkit in dict.fromkeys(Path(root) for root in toolkits if root):
        found += [toolkit / "lib64", toolkit / "lib", toolkit / "extras/CUPTI/lib64"]
    return [folder for folder in found if folder.is_dir()]


@functools.cache
def look_in_wheels() -> None:
    """To be called before a vendor's library is opened."""
    for folder in folders():
        add_library_folder(str(folder))
