# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import fuse, nn
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, check_matches_models, make_models


def attention(**arguments):
    return lambda: torch.nn.MultiheadAttention(12, 3, **arguments)


def run(models, query, key, value, padding=None, **arguments):
    """Output and weights of the array, and of the models one by one."""
    array = fuse(models)
    mine = array(query, key, value, key_padding_mask=padding, **arguments)
    alone = [
        model(
            query[i], key[i], value[i], key_padding_mask=None if padding is None else padding[i], **arguments
        )
        for i, model in enumerate(models)
    ]
    return mine, alone


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_self_attention_matches_models(batch_first, bias, need_weights, device):
    models = make_models(attention(batch_first=batch_first, bias=bias), 3, device=device)
    x = torch.randn(3, 5, 7, 12, device=device)
    (output, weights), alone = run(models, x, x, x, need_weights=need_weights)
    for index, (expected, expected_weights) in enumerate(alone):
        assert_near(output[index], expected)
        if need_weights:
            assert_near(weights[index], expected_weights)
        else:
            assert weights is None


def test_cross_attention_and_its_gradients():
    models = make_models(attention(batch_first=True), 2)
    check_matches_models(models, torch.randn(2, 4, 5, 12), torch.randn(2, 4, 7, 12), torch.randn(2, 4, 7, 12))


@pytest.mark.parametrize("need_weights", [True, False])
def test_padding_is_ignored(need_weights):
    models = make_models(attention(batch_first=True), 2)
    x = torch.randn(2, 4, 6, 12)
    padding = torch.zeros(2, 4, 6, dtype=torch.bool)
    padding[0, 1, 4:] = padding[1, 2, 2:] = True
    (output, _), alone = run(models, x, x, x, padding, need_weights=need_weights)
    for index, (expected, _) in enumerate(alone):
        assert_near(output[index], expected)


@pytest.mark.parametrize("causal", [True, False])
def test_a_mask_shared_by_the_models(causal):
    models = make_models(attention(batch_first=True), 2)
    x = torch.randn(2, 4, 6, 12)
    mask = torch.ones(6, 6, dtype=torch.bool).triu(1)
    (output, _), alone = run(models, x, x, x, attn_mask=mask, need_weights=False, is_causal=causal)
    for index, (expected, _) in enumerate(alone):
        assert_near(output[index], expected)


def test_a_float_mask_for_every_head():
    models = make_models(attention(batch_first=True), 2)
    x, mask = torch.randn(2, 4, 6, 12), torch.randn(4 * 3, 6, 6)
    (output, _), alone = run(models, x, x, x, attn_mask=mask)
    for index, (expected, _) in enumerate(alone):
        assert_near(output[index], expected)


def test_long_sequences_match():
    models = make_models(attention(batch_first=True), 2)
    x = torch.randn(2, 1, 150, 12)
    (output, _), alone = run(models, x, x, x, need_weights=False)
    for index, (expected, _) in enumerate(alone):
        assert_near(output[index], expected)


def test_fused_and_composed_paths_drop_the_same_weights():
    array = nn.MultiheadAttention(12, 3, dropout=[0.2, 0.6], batch_first=True, B=2)
    x = torch.randn(2, 4, 6, 12)
    nn.seed(array, [1, 2])
    fused, _ = array(x, x, x, need_weights=False)
    nn.seed(array, [1, 2])
    composed, _ = array(x, x, x, need_weights=True)
    assert_near(fused, composed)


@pytest.mark.parametrize(
    "argument", [{"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 5}, {"num_heads": 5}]
)
def test_refuses_what_it_cannot_do(argument):
    with pytest.raises(InvalidArgument):
        nn.MultiheadAttention(12, argument.pop("num_heads", 3), **argument, B=2)
