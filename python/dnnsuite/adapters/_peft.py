# SPDX-License-Identifier: MIT
"""The package peft, imported when it is first needed."""

from __future__ import annotations

import contextlib
import importlib
from types import ModuleType

from .._fuse.layer_table import register_package
from ..data import import_torchvision
from ..errors import Unavailable


def import_peft() -> ModuleType:
    """Import peft, even if the installed torchvision was built for another torch.

    Raises:
        Unavailable: if it is not installed.
    """
    with contextlib.suppress(Unavailable):  # transformers needs no torchvision, only none that fails to import
        import_torchvision()
    try:
        found = importlib.import_module("peft")
    except ModuleNotFoundError as error:
        if error.name != "peft":
            raise
        raise Unavailable("PEFT is not installed", remedy="pip install 'dnnsuite[peft]'") from None
    return found


def _tell_of_lora() -> None:
    importlib.import_module(".places", __package__)


def _tell_of_quantized() -> None:
    importlib.import_module(".quantized", __package__)


register_package("peft", _tell_of_lora)
register_package("bitsandbytes", _tell_of_quantized)
