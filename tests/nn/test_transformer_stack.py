# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import fuse, nn, unfuse
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, make_models

SMALL = {"dim_feedforward": 20, "dropout": 0.0, "batch_first": True}


def encoder():
    layer = torch.nn.TransformerEncoderLayer(12, 3, **SMALL)
    return torch.nn.TransformerEncoder(layer, 2, torch.nn.LayerNorm(12), enable_nested_tensor=False)


def decoder():
    return torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(12, 3, **SMALL), 2)


def test_masks_of_the_encoder_shared_and_per_model():
    models, x = make_models(encoder, 2), torch.randn(2, 4, 6, 12)
    array, mask, padding = fuse(models), torch.randn(2, 6, 6), torch.zeros(2, 4, 6, dtype=torch.bool)
    padding[1, :, 5] = True
    causal = torch.nn.Transformer.generate_square_subsequent_mask(6)
    floating = torch.zeros(2, 4, 6).masked_fill(padding, -torch.inf)
    output, shared = array(x, mask, floating), array(x, causal, padding)
    for index, model in enumerate(models):
        assert_near(output[index], model(x[index], mask[index], floating[index]))
        assert_near(shared[index], model(x[index], causal, floating[index]))


def test_masks_of_the_decoder():
    models = make_models(decoder, 2)
    x, memory = torch.randn(2, 4, 6, 12), torch.randn(2, 4, 5, 12)
    causal = torch.nn.Transformer.generate_square_subsequent_mask(6)
    array, hide = fuse(models), torch.rand(2, 6, 5) < 0.3
    hide[:, :, 0] = False
    padding = torch.zeros(2, 4, 5, dtype=torch.bool)
    padding[0, 1, 4] = True
    output = array(x, memory, causal, hide, memory_key_padding_mask=padding)
    for index, model in enumerate(models):
        expected = model(x[index], memory[index], causal, hide[index], memory_key_padding_mask=padding[index])
        assert_near(output[index], expected)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_a_transformer_from_the_constructor_and_back():
    array = nn.Transformer(12, 3, 1, 2, 20, dropout=[0.1, 0.3], activation="gelu", B=2).eval()
    plain = torch.nn.Transformer(12, 3, 1, 2, 20)
    assert {k: v.shape[1:] for k, v in array.state_dict().items()} == {
        k: v.shape for k, v in plain.state_dict().items()
    }
    source, target = torch.randn(2, 5, 4, 12), torch.randn(2, 6, 4, 12)
    output = array(source, target)
    for index, model in enumerate(unfuse(fuse(unfuse_children(array)))):
        assert_near(output[index], model(source[index], target[index]))
        assert model.encoder.layers[0].dropout.p == [0.1, 0.3][index]


def unfuse_children(array):
    return [array.to_model(index) for index in range(array.B)]


def test_layers_of_other_classes_have_no_rule():
    class Own(torch.nn.TransformerEncoderLayer):
        pass

    model = torch.nn.TransformerEncoder(Own(12, 3, 20), 1, enable_nested_tensor=False)
    assert not nn.TransformerEncoder.can_fuse([model])
    with pytest.raises(InvalidArgument, match="Own"):
        nn.TransformerEncoder.from_models([model])


def test_a_stack_with_another_norm_is_fused_part_by_part():
    def make():
        layer = torch.nn.TransformerEncoderLayer(12, 3, **SMALL)
        return torch.nn.TransformerEncoder(layer, 2, torch.nn.Linear(12, 12), enable_nested_tensor=False)

    models, x = make_models(make, 2), torch.randn(2, 4, 6, 12)
    output = fuse(models)(x)
    for index, model in enumerate(models):
        assert_near(output[index], model(x[index]))


def test_refuses():
    layer = nn.TransformerEncoderLayer(12, 3, 20, B=2)
    with pytest.raises(InvalidArgument, match="its layer has B=2"):
        nn.TransformerEncoder(layer, 2, B=3)
    small = nn.Transformer(12, 3, 1, 1, 20, batch_first=True, B=2)
    with pytest.raises(InvalidArgument, match="d_model=12"):
        small(torch.randn(2, 4, 5, 8), torch.randn(2, 4, 5, 8))
    with pytest.raises(InvalidArgument, match="differ in the batch"):
        small(torch.randn(2, 4, 5, 12), torch.randn(2, 3, 5, 12))


def test_a_stack_in_code_that_picks_elements_by_a_mask_runs_model_by_model():
    class Masked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            layer = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
            self.stack = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

        def forward(self, x, mask):
            return self.stack(x)[mask].square().mean()

    models = [Masked().double() for _ in range(2)]
    x, mask = torch.randn(2, 3, 4, 8).double(), torch.rand(2, 3, 4) < torch.tensor([0.3, 0.7])[:, None, None]
    mask[:, 0, 0] = True
    expected = torch.stack([model(*own) for model, *own in zip(models, x, mask, strict=True)])
    torch.testing.assert_close(fuse(models)(x, mask), expected)
