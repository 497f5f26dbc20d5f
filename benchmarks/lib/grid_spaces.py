# SPDX-License-Identifier: MIT
"""Every operator of `grid.py`."""

from __future__ import annotations

import grid_cells
import grid_image_cells
import grid_sequence_cells
from grid_cells import Space

SPACES: dict[str, Space] = grid_cells.SPACES | grid_image_cells.SPACES | grid_sequence_cells.SPACES
