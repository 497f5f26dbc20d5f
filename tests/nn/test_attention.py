# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import fuse, nn, stack
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, check_matches_models, make_models


def attention(**arguments):
    return lambda: torch.nn.MultiheadAttention(12, 3, **arguments)


def run(models, query, key, value, padding=None, **arguments):
    """Output and weights of the array, and of the models one by one."""
    array = fuse(models)
    mine = array(query, key, value, key_padding_mask=padding, **arguments)
    alone = [
        model(query[i], key[i], value[i], key_padding_mask=None if padding is None else padding[i], **arguments)
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


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("heads", [(), (4 * 3,)])
@pytest.mark.parametrize("L", [6, 50])
def test_a_mask_for_every_model_or_head(heads, need_weights, L):
    models = make_models(attention(batch_first=True), 2)
    x, mask = torch.randn(2, 4, L, 12), torch.randn(2, *heads, L, L)
    array = fuse(models)
    output, _ = array(x, x, x, attn_mask=mask, need_weights=need_weights)
    shared, _ = array(x, x, x, attn_mask=stack(mask[0], B=2), need_weights=need_weights)
    for index, model in enumerate(models):
        own = x[index]
        assert_near(output[index], model(own, own, own, attn_mask=mask[index])[0])
        assert_near(shared[index], model(own, own, own, attn_mask=mask[0])[0])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_long_sequences_match(causal, padded):
    models = make_models(attention(batch_first=True), 2)
    x = torch.randn(2, 2, 150, 12)
    mask = torch.ones(150, 150, dtype=torch.bool).triu(1) if causal else None
    padding = torch.zeros(2, 2, 150, dtype=torch.bool) if padded else None
    if padded:
        padding[1, :, 140:] = True
    (output, _), alone = run(models, x, x, x, padding, need_weights=False, attn_mask=mask, is_causal=causal)
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


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("extra", ["add_bias_kv", "add_zero_attn"])
def test_keys_that_are_always_there_with_masks(extra, need_weights):
    models = make_models(attention(batch_first=True, **{extra: True}), 2)
    x, y = torch.randn(2, 4, 6, 12), torch.randn(2, 4, 7, 12)
    padding = torch.zeros(2, 4, 7, dtype=torch.bool)
    padding[0, 1] = True  # nothing but the extra key
    mask = torch.rand(6, 7) < 0.3
    (output, _), alone = run(models, x, y, y, padding, attn_mask=mask, need_weights=need_weights)
    for index, (expected, _) in enumerate(alone):
        assert_near(output[index], expected)


def test_one_sequence_without_a_batch():
    models = make_models(attention(), 2)
    x = torch.randn(2, 6, 12)
    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[1, 5] = True
    (output, weights), alone = run(models, x, x, x, padding, average_attn_weights=False)
    for index, (expected, expected_weights) in enumerate(alone):
        assert_near(output[index], expected)
        assert_near(weights[index], expected_weights)


def test_refuses():
    with pytest.raises(InvalidArgument, match="divisible"):
        nn.MultiheadAttention(12, 5, B=2)
    array = nn.MultiheadAttention(12, 3, B=2)
    x = torch.randn(2, 6, 4, 12)
    with pytest.raises(InvalidArgument, match="hint"):
        array(x, x, x, is_causal=True)
    with pytest.raises(InvalidArgument, match="attn_mask of B=2 models"):
        array(x, x, x, attn_mask=torch.zeros(12, 6, 6))
