# SPDX-License-Identifier: MIT
"""Training data of the jobs: real data where there are some, else drawn from a seed in the same shapes."""

from . import batches as batches
from . import cifar as cifar
from . import detection as detection
from . import games as games
from . import imagenet as imagenet
from . import imagenet_shards as imagenet_shards
from . import mnist as mnist
from . import photographs as photographs
from . import point_clouds as point_clouds
from . import ratings as ratings
from . import super_resolution as super_resolution
from . import text as text
from . import translation as translation
from . import words as words
from ._origin import Origin as Origin
from ._origin import import_torchvision as import_torchvision
from ._origin import torchvision_loads as torchvision_loads
