# SPDX-License-Identifier: MIT
import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

from dnnsuite import fuse, nn
from dnnsuite.nn._models import match, promoted
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
        loss = nn.functional.cross_entropy(array(x).flatten(1, 2), torch.zeros(2, 15, dtype=torch.long, device=device))
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


def test_a_state_keeps_its_32_bits():
    low, high = torch.ones(2, dtype=torch.bfloat16), torch.ones(2)
    assert promoted(low, high) == torch.float32
    assert promoted(low, low) == torch.bfloat16


STATE = (torch.randn(1, 3, 6), torch.randn(1, 3, 6))
CAST = {
    "GRU": (lambda: torch.nn.GRU(4, 6, 2), lambda: (torch.randn(5, 3, 4),)),
    "GRU from a state": (lambda: torch.nn.GRU(4, 6), lambda: (torch.randn(5, 3, 4), STATE[0])),
    "LSTM": (lambda: torch.nn.LSTM(4, 6), lambda: (torch.randn(5, 3, 4),)),
    "RNN": (lambda: torch.nn.RNN(4, 6), lambda: (torch.randn(5, 3, 4),)),
    "GRUCell": (lambda: torch.nn.GRUCell(4, 6), lambda: (torch.randn(3, 4),)),
    "LSTMCell": (lambda: torch.nn.LSTMCell(4, 6), lambda: (torch.randn(3, 4), (STATE[0][0], STATE[1][0]))),
    "RNNCell": (lambda: torch.nn.RNNCell(4, 6), lambda: (torch.randn(3, 4),)),
    "LayerNorm": (lambda: torch.nn.LayerNorm(4), lambda: (torch.randn(3, 4),)),
    "RMSNorm": (lambda: torch.nn.RMSNorm(4), lambda: (torch.randn(3, 4),)),
    "NLLLoss": (torch.nn.NLLLoss, lambda: (torch.randn(3, 4), torch.randint(4, (3,)))),
    "MultiMarginLoss": (torch.nn.MultiMarginLoss, lambda: (torch.randn(3, 4), torch.randint(4, (3,)))),
    "one tap": (lambda: torch.nn.Conv2d(4, 6, 1), lambda: (torch.randn(3, 4, 5, 5),)),
    "depthwise": (lambda: torch.nn.Conv2d(4, 4, 5, groups=4), lambda: (torch.randn(3, 4, 5, 5),)),
}


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")  # torch's own, of its RMSNorm
@pytest.mark.parametrize("dtypes", [(None, None), (None, torch.bfloat16), (torch.float64, torch.float64)], ids=str)
@pytest.mark.parametrize("name", CAST)
def test_autocast_gives_the_models_dtypes(name, dtypes):
    """dtypes of the parameters and of the floating inputs."""
    make, inputs = CAST[name]
    models = make_models(make, 2, dtypes[0] or torch.float32)
    cast = lambda x: x.to(dtypes[1]) if dtypes[1] and x.is_floating_point() else x  # noqa: E731
    each = [tree_map(cast, inputs()) for _ in models]
    array = fuse(models)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = tree_leaves(array(*tree_map(lambda *parts: torch.stack(parts), *each)))
        expected = [tree_leaves(model(*own)) for model, own in zip(models, each, strict=True)]
    for place, y in enumerate(found):
        for index, own in enumerate(expected):
            torch.testing.assert_close(y[index], own[place], rtol=0.05, atol=0.05)  # their dtypes too
