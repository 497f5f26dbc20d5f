# SPDX-License-Identifier: MIT
"""Names of a package that are resolved when they are first used, so that importing the package imports none of them.

A package writes `__getattr__, __dir__ = lazy(__name__, {...})` below its imports for type checkers. A module that needs
torch, numpy, pandas or Pillow only when it is at work has them from here: `from .._lazy import pandas as pd`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["Image", "Late", "functional", "lazy", "npt", "numpy", "pandas", "torch"]


class Late(ModuleType):
    """A module that is imported when something of it is first used."""

    def __getattr__(self, name: str) -> Any:
        module = importlib.import_module(self.__name__)
        self.__dict__.update(vars(module))
        return getattr(module, name)


if TYPE_CHECKING:
    import numpy as numpy
    import pandas as pandas
    import torch as torch
    from numpy import typing as npt
    from PIL import Image as Image
    from torch.nn import functional as functional
else:
    names = ("numpy", "numpy.typing", "pandas", "torch", "torch.nn.functional", "PIL.Image")
    numpy, npt, pandas, torch, functional, Image = map(Late, names)


def lazy(
    package: str, homes: Mapping[str, str], modules: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions `__getattr__` and `__dir__` of a package.

    Args:
        package: the package's `__name__`.
        homes: names in each module, with blanks between, by the module's name with its dot; `name=other` stands for one
            that is called otherwise there.
        modules: names of modules of the package that are names of it, too.
    """
    found: dict[str, tuple[str, str]] = {}
    for module, names in homes.items():
        for name, _, other in (each.partition("=") for each in names.split()):
            found[name] = (module, other or name)

    def __getattr__(name: str) -> Any:
        if name in found:
            module, own = found[name]
            value = getattr(importlib.import_module(module, package), own)
        elif name in modules:
            value = importlib.import_module(f".{name}", package)
        else:
            from .errors import did_you_mean

            hint = "" if name.startswith("_") else did_you_mean(name, [*found, *modules])
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *found, *modules})

    return __getattr__, __dir__
