# SPDX-License-Identifier: MIT
"""The package peft, imported when it is first needed."""

from __future__ import annotations

import contextlib
import functools
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


for _package, _room in (("peft", ".places"), ("bitsandbytes", ".quantized")):
    register_package(_package, functools.partial(importlib.import_module, _room, __package__))
