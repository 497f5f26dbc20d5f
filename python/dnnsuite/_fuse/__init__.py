# SPDX-License-Identifier: MIT
"""Models into an array of models, and back."""

from . import _dimensions as _dimensions
from . import _elementwise as _elementwise
from . import _products as _products
from . import _random as _random
from . import _shapes as _shapes
from ._array import Array as Array
from ._array import fuse as fuse
from ._array import unfuse as unfuse
from ._array import width as width
from ._batch import stack as stack
from ._batch import unstack as unstack
from ._coverage import Cover as Cover
from ._coverage import coverage as coverage
from ._narrow import narrow as narrow
from ._narrow import views as views
from ._state import has_gradient_hook as has_gradient_hook

__all__ = [
    "Array",
    "Cover",
    "coverage",
    "fuse",
    "has_gradient_hook",
    "narrow",
    "stack",
    "unfuse",
    "unstack",
    "views",
    "width",
]
