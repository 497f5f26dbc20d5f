# SPDX-License-Identifier: MIT
"""Models into an array of models, and back."""

from .array import Array as Array
from .array import fuse as fuse
from .array import unfuse as unfuse
from .array import width as width
from .batch import stack as stack
from .batch import unstack as unstack
from .coverage import Cover as Cover
from .coverage import coverage as coverage
from .rules import dimensions as _dimensions  # noqa: F401
from .rules import elementwise, layers, products, random, shapes  # noqa: F401
from .slices import narrow as narrow
from .slices import views as views
from .state import has_gradient_hook as has_gradient_hook

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
