# SPDX-License-Identifier: MIT
"""Rules: the meaning of each torch function on the tensors of B models. Importing this package registers them."""

from . import dimensions as dimensions
from . import elementwise as elementwise
from . import products as products
from . import random as random
from . import shapes as shapes
