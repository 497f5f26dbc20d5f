# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite.errors import InvalidArgument
from dnnsuite.nn import functional


def signs(*shape):
    return torch.randint(2, shape).float() * 2 - 1


INPUTS = {
    "hinge_embedding_loss": lambda: (torch.rand(3, 4), signs(3, 4)),
    "soft_margin_loss": lambda: (torch.randn(3, 4, 5), signs(3, 4, 5)),
    "margin_ranking_loss": lambda: (torch.randn(3, 4), torch.randn(3, 4), signs(3, 4)),
    "cosine_embedding_loss": lambda: (torch.randn(3, 4, 5), torch.randn(3, 4, 5), signs(3, 4)),
    "triplet_margin_loss": lambda: tuple(torch.randn(3, 3, 4, 5)),
    "triplet_margin_with_distance_loss": lambda: tuple(torch.randn(3, 3, 4, 5)),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", INPUTS)
def test_matches_torch(name, reduction):
    inputs = INPUTS[name]()
    got = getattr(functional, name)(*inputs, reduction=reduction)
    for model in range(3):
        expected = getattr(torch.nn.functional, name)(*(x[model] for x in inputs), reduction=reduction)
        torch.testing.assert_close(got[model], expected)


@pytest.mark.parametrize("name", [name for name in INPUTS if "distance" not in name])
def test_one_sample_without_a_dimension(name):
    inputs = [x[:, 0] for x in INPUTS[name]()]
    got = getattr(functional, name)(*inputs)
    for model in range(3):
        expected = getattr(torch.nn.functional, name)(*(x[model] for x in inputs))
        torch.testing.assert_close(got[model], expected)


def test_no_models():
    assert functional.ctc_loss(*(torch.zeros(0, 2, 3, 4),) * 2, torch.zeros(0, 3), torch.zeros(0, 3)).shape == (0,)


N, C = 5, 3
UNSTACKED = {
    "hinge_embedding_loss": (torch.ones(N, C),),
    "soft_margin_loss": (torch.ones(N, C),),
    "margin_ranking_loss": (torch.randn(N, C), torch.ones(N, C)),
    "cosine_embedding_loss": (torch.randn(N, C), torch.ones(N)),
    "triplet_margin_loss": (torch.randn(N, C), torch.randn(N, C)),
    "triplet_margin_with_distance_loss": (torch.randn(N, C), torch.randn(N, C)),
    "multilabel_margin_loss": (torch.zeros(N, C, dtype=torch.long),),
    "ctc_loss": (torch.ones(N, 2, dtype=torch.long), [2] * N, [1] * N),
    "nll_loss": (torch.zeros(N, dtype=torch.long),),
    "multi_margin_loss": (torch.zeros(N, dtype=torch.long),),
    "gaussian_nll_loss": (torch.randn(N, C), torch.ones(N, C)),
    "l1_loss": (torch.randn(N, C),),
}


@pytest.mark.parametrize("name", UNSTACKED)
def test_targets_without_models_are_refused_with_the_call_that_stacks_them(name):
    with pytest.raises(InvalidArgument, match=r"what all models share is dnnsuite.stack\(\w+, B=2\)"):
        getattr(functional, name)(torch.randn(2, N, C), *UNSTACKED[name])
