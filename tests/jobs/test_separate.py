# SPDX-License-Identifier: MIT
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import dnnsuite
from dnnsuite.errors import InvalidArgument
from dnnsuite.jobs import _separate
from dnnsuite.jobs._separate import share_masks
from helpers import assert_near, make_models


class AllPass:
    """A stream whose masks drop nothing."""

    def drop(self, x, p):
        return x


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("mask", [None, "bool", "float", "heads"])
@pytest.mark.parametrize("padding", [False, True])
def test_attention_written_out_is_torchs_without_dropout(batch_first, mask, padding):
    """Three sequences of five, two heads."""
    module = torch.nn.MultiheadAttention(4, 2, batch_first=batch_first)
    later = torch.ones(5, 5, dtype=torch.bool).triu(1)
    masks = {
        None: None,
        "bool": later,
        "float": torch.zeros(5, 5).masked_fill(later, -torch.inf),
        "heads": torch.stack([later] * 5 + [torch.zeros_like(later)]),
    }
    x = torch.randn(3, 5, 4) if batch_first else torch.randn(5, 3, 4)
    keys = torch.zeros(3, 5, dtype=torch.bool)
    keys[1, 3:] = True
    keys = torch.zeros(3, 5).masked_fill(keys, -torch.inf) if mask == "float" else keys
    arguments = {"attn_mask": masks[mask], "key_padding_mask": keys if padding else None, "need_weights": False}
    plain, _ = module(x, x, x, **arguments)
    module.__class__, module.masks, module.dropout = _separate._StreamAttention, AllPass(), 0.5
    assert_near(module(x, x, x, **arguments)[0], plain)
    module.dropout = 0.0
    assert torch.equal(module(x, x, x, **arguments)[0], plain)


def test_attention_that_cannot_be_written_out_is_refused():
    module = torch.nn.MultiheadAttention(4, 2, dropout=0.5)
    module.__class__, module.masks = _separate._StreamAttention, AllPass()
    x = torch.randn(5, 3, 4)
    with pytest.raises(InvalidArgument, match="gives no weights"):
        module(x, x, x)


def test_models_with_shared_masks_run_in_threads_of_their_own():
    """Each with its own masks, whatever runs beside it; and torch's function is left alone."""
    original = torch.nn.functional.scaled_dot_product_attention
    models = make_models(lambda: torch.nn.TransformerEncoderLayer(8, 2, 8, 0.3, batch_first=True), 2)
    array = dnnsuite.fuse(models, seeds=[1, 2])
    x = torch.randn(2, 3, 5, 8)
    expected = [array(x) for _ in range(4)]
    for model, seed in zip(models, [1, 2], strict=True):
        share_masks(model, array, seed)

    def run(index):
        return [models[index](x[index]) for _ in range(4)]

    with ThreadPoolExecutor(2) as pool:
        for index, outputs in enumerate(pool.map(run, range(2))):
            for output, wanted in zip(outputs, expected, strict=True):
                assert_near(output, wanted[index])
    assert torch.nn.functional.scaled_dot_product_attention is original


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize(
    "options", [{}, {"dropout": 0.4}, {"dropout": 0.4, "batch_first": True, "bidirectional": True}]
)
def test_recurrent_networks_draw_the_arrays_masks(kind, options):
    """Three layers, of which the first two drop; in two steps, forward and backward."""
    models = make_models(lambda: getattr(torch.nn, kind)(4, 3, 3, **options), 2)
    array = dnnsuite.fuse(models, seeds=[5, 6])
    x = torch.randn(2, 6, 5, 4)
    expected = [array(x) for _ in range(2)]
    for i, model in enumerate(models):
        share_masks(model, array, 5 + i)
        for output, last in expected:
            found, end = model(x[i])
            assert_near(found, output[i])
            pairs = zip(end, last, strict=True) if kind == "LSTM" else [(end, last)]
            for mine, its in pairs:
                assert_near(mine, its[i])


class Noisy(torch.nn.Module):
    """A model whose forward draws numbers itself."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.dropout = torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(self.dropout(x))
        return y + torch.randn_like(y) * torch.rand_like(y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_a_forward_draws_itself_is_drawn_from_the_models_stream(dtype: torch.dtype) -> None:
    models = make_models(Noisy, 2)
    array = dnnsuite.fuse([model.to(dtype) for model in models], seeds=[3, 4])
    x = torch.randn(5, 4, dtype=dtype)
    expected = [array(dnnsuite.stack(x, B=2)) for _ in range(3)]
    for index, model in enumerate(models):
        streams = share_masks(model, array, seed=3 + index)
        for step in expected:
            assert_near(model(x), step[index])
        for stream, draws in zip(streams, (1, 2), strict=True):  # of a step
            stream.position = draws
        assert_near(model(x), expected[1][index])
