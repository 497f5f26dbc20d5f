# SPDX-License-Identifier: MIT
"""What the jobs train on: real data where there is some, the same shapes from a seed where not."""

from . import mlm as mlm
from . import text as text
from ._torchvision import import_torchvision as import_torchvision
