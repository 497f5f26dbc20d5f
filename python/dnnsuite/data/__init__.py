# SPDX-License-Identifier: MIT
"""Training data of the jobs: real data where there is some, the same shapes from a seed otherwise."""

from . import cifar as cifar
from . import detection as detection
from . import games as games
from . import imagenet as imagenet
from . import mlm as mlm
from . import mnist as mnist
from . import photographs as photographs
from . import ratings as ratings
from . import super_resolution as super_resolution
from . import text as text
from . import translation as translation
from . import words as words
from ._torchvision import import_torchvision as import_torchvision
