# SPDX-License-Identifier: MIT
"""GPUs that a process sees, as CUDA reads its variable."""

import pytest

from dnnsuite.profiler.nvml._device import visible

UUIDS = ["GPU-aaaa-1", "GPU-bbbb-2", "GPU-bbcc-3"]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("1", [1]),
        ("2,0", [2, 0]),
        ("0,-1,2", [0]),  # what follows an invalid entry is not seen
        ("0,9,1", [0]),
        ("1,1", [1]),
        (" 1 , 2 ", [1, 2]),
        ("GPU-bbcc", [2]),
        ("GPU-none,0", []),
    ],
)
def test_visible(setting, expected):
    assert visible(3, setting, UUIDS.__getitem__) == expected
