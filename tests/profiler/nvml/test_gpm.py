# SPDX-License-Identifier: MIT
from dnnsuite.profiler.nvml._gpm import GPM_DEFINITIONS
from dnnsuite.profiler.nvml._quantities import DEFINITIONS


def test_names_are_defined_once_and_say_between_what():
    assert not set(GPM_DEFINITIONS) & set(DEFINITIONS)
    assert all(line.endswith("between this sample and the one before") for line in GPM_DEFINITIONS.values())
