# SPDX-License-Identifier: MIT
"""Models that are changed between steps, in an array and one by one in torch: a sample of the generator's cases.

Classes of cause that the generator goes through: state that a comparison of models cannot see, Python values that a
recording has read, changes that a forward makes to modules and parameters, and what reaches a shard.
"""

import pytest
import torch

from mutated_models import Case

RUNS = {"direct": {}, "whole": {"width": 3}, "single": {"width": 1}, "threads": {"width": 2, "threads": 2}}


@pytest.mark.parametrize("seed", [*range(10), 11, 19, 23, 27])
def test_an_array_follows_its_models_through_mutations(seed):
    case = Case(seed)
    run = list(RUNS)[seed % len(RUNS)]
    torch.testing.assert_close(case.found(**RUNS[run]), case.expected(), rtol=1e-8, atol=1e-10, msg=case.name)
