# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import fuse, nn
from dnnsuite.nn._precision import match
from helpers import make_models


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_autocast_gives_what_it_gives_the_models(norm_first, dropout, device):
    def make():
        return torch.nn.TransformerEncoderLayer(16, 4, 32, dropout, batch_first=True, norm_first=norm_first)

    models = make_models(make, 2, device=device)
    array = fuse(models)
    x = torch.randn(2, 3, 5, 16, device=device)
    if dropout == 0.0:
        with torch.autocast(device, dtype=torch.bfloat16):
            output = array(x)
            expected = torch.stack([model(x[i]) for i, model in enumerate(models)])
        torch.testing.assert_close(output.float(), expected.float(), rtol=0.05, atol=0.1)
    with torch.autocast(device, dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(
            array(x).flatten(1, 2), torch.zeros(2, 15, dtype=torch.long, device=device)
        )
    loss.sum().backward()
    for name, parameter in array.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.dtype == torch.float32, name
        assert parameter.grad.isfinite().all(), name


def test_what_matches_is_not_copied():
    x = torch.ones(2)
    assert match(x, torch.ones(3)) is x
    assert match(x, None) is x
    assert match(None, x) is None
    assert match(x, torch.ones(3, dtype=torch.float64)).dtype == torch.float64
