# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import nn
from dnnsuite.errors import InvalidArgument
from dnnsuite.nn import functional
from helpers import assert_near, check_matches_models, make_models


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
def test_cosine_similarity_matches_models(dim):
    models = make_models(lambda: torch.nn.CosineSimilarity(dim), 2)
    check_matches_models(models, torch.randn(2, 4, 3, 5), torch.randn(2, 4, 3, 5))


@pytest.mark.parametrize("p", [1.0, 2.0, float("inf")])
def test_pairwise_distance_matches_models(p):
    models = make_models(lambda: torch.nn.PairwiseDistance(p, keepdim=True), 2)
    check_matches_models(models, torch.randn(2, 4, 5), torch.randn(2, 4, 5))


def test_broadcast_is_within_each_model():
    rows, one = torch.randn(3, 3, 5), torch.randn(3, 5)
    similar = functional.cosine_similarity(rows, one, -1)
    far = functional.pairwise_distance(rows, one)
    for index in range(3):
        assert_near(similar[index], torch.nn.functional.cosine_similarity(rows[index], one[index], -1))
        assert_near(far[index], torch.nn.functional.pairwise_distance(rows[index], one[index]))


def test_the_models_are_no_dimension_to_sum_over():
    with pytest.raises(InvalidArgument, match=r"within \[-2, 1\]"):
        nn.CosineSimilarity(-3, B=2)(torch.randn(2, 4, 5), torch.randn(2, 4, 5))
