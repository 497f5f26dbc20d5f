# SPDX-License-Identifier: MIT
"""What the jobs train on: real data where there is some, the same shapes from a seed where not."""

from . import games as games
from . import mlm as mlm
from . import mnist as mnist
from . import ratings as ratings
from . import text as text
from . import words as words
from ._torchvision import import_torchvision as import_torchvision
