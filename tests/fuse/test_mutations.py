# SPDX-License-Identifier: MIT
"""Models that are changed between steps, in an array and one by one in torch: a sample of the generator's cases.

Classes of cause that the generator goes through: state that a comparison of models cannot see, Python values that a
recording has read, changes that a forward makes to modules and parameters, and what reaches a shard.
"""

import pytest
import torch

from mutated_models import Case

RUNS = {"direct": {}, "whole": {"width": 3}, "single": {"width": 1}, "threads": {"width": 2, "threads": 2}}


CASES = [(seed, list(RUNS)[seed % len(RUNS)]) for seed in range(10)]
#: Those that have found something.
CASES += [(11, "whole"), (19, "whole"), (23, "threads"), (27, "direct"), (119, "direct"), (121, "threads")]


@pytest.mark.parametrize(("seed", "run"), CASES)
def test_an_array_follows_its_models_through_mutations(seed, run):
    case = Case(seed)
    torch.testing.assert_close(case.found(**RUNS[run]), case.expected(), rtol=1e-8, atol=1e-10, msg=case.name)
