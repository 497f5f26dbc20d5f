# SPDX-License-Identifier: MIT
"""torchvision where its compiled operators do not load."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from .._lazy import torch
from ..errors import Unavailable

# What torchvision gives fake kernels at import, whether or not its library is there.
_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_kept: list[Any] = []  # a torch.library.Library takes its schemas with it when it goes


def import_torchvision() -> ModuleType:
    """Import torchvision, also beside a torch that its compiled operators do not fit.

    PyPI has torchvision for CUDA only; beside a CPU build of torch its library does not load, and `import torchvision`
    fails, which takes transformers with it. This declares the operators whose absence is fatal, then imports.
    Models, transforms and most datasets work so; functions over the compiled operators (`ops.nms`, detection
    models, `io.decode_image`) say that they are missing. Where the library loads, this is `import torchvision`.
    Call it before the first import of transformers.

    Raises Unavailable if torchvision is not installed.
    """
    if "torchvision" in sys.modules:
        return sys.modules["torchvision"]
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        raise Unavailable("the package torchvision", "this Python", "pip install torchvision==0.28.0")
    if not _loads(Path(spec.origin).parent):
        _declare()
    return importlib.import_module("torchvision")


def torchvision_loads() -> bool | None:
    """Return True if torchvision's compiled operators load beside this torch; None where it is not installed."""
    spec = importlib.util.find_spec("torchvision")
    return None if spec is None or spec.origin is None else _loads(Path(spec.origin).parent)


def _loads(folder: Path) -> bool:
    """Return True if the compiled operators in `folder` are loaded, or can be."""
    for library in (*folder.glob("_C*.so"), *folder.glob("_C*.pyd")):
        try:
            torch.ops.load_library(str(library))
        except OSError:
            continue
        return True
    return False


def _declare() -> None:
    """Declare the operators of `_SCHEMAS` that are missing, without an implementation."""
    missing = [schema for schema in _SCHEMAS if not hasattr(torch.ops.torchvision, schema.split("(")[0])]
    if missing:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for schema in missing:
            library.define(schema)
        _kept.append(library)
