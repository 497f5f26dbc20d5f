# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import data, models


def convolution(channels, filters, side):
    return channels * filters * side**2 + filters


def test_the_parameters_of_the_transformer():
    down = convolution(3, 32, 9) + convolution(32, 64, 3) + convolution(64, 128, 3)
    residual = 5 * 2 * (convolution(128, 128, 3) + 2 * 128)
    up = convolution(128, 64, 3) + convolution(64, 32, 3) + convolution(32, 3, 9)
    norms = 2 * (32 + 64 + 128 + 64 + 32)
    parameters = sum(p.numel() for p in models.TransformerNet().parameters())
    assert parameters == down + residual + up + norms == 1679235


def test_a_seed_gives_the_first_layers_the_first_numbers():
    torch.manual_seed(3)
    model = models.TransformerNet()
    torch.manual_seed(3)
    for layer in model.modules():
        if isinstance(layer, torch.nn.Conv2d):
            like = torch.nn.Conv2d(layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride)
            assert torch.equal(layer.weight, like.weight)


@pytest.mark.parametrize("size", [(16, 16), (24, 40)])
def test_images_keep_their_size(size):
    assert models.TransformerNet()(torch.rand(2, 3, *size)).shape == (2, 3, *size)


def test_the_transformer_does_not_see_where_the_brightness_lies():
    # Each convolution but the last is followed by a normalization over the image, and the borders are mirrored.
    model = models.TransformerNet()
    x = torch.rand(1, 3, 16, 16) * 255
    torch.testing.assert_close(model(2 * x + 30), model(x), rtol=1e-3, atol=1e-3)


def test_the_features_are_those_of_torchvision():
    data.import_torchvision()
    from torchvision.models.vgg import VGG, cfgs, make_layers

    theirs = VGG(make_layers(cfgs["D"]), num_classes=1, init_weights=False)
    ours = models.VGG16Features()
    state = {name: theirs.features.state_dict()[name] for name in ours.state_dict()}
    ours.load_state_dict(state)
    x, expected = torch.randn(1, 3, 32, 32), []
    y = x
    for place, layer in enumerate(theirs.features[:23]):
        y = layer(y)
        if place in (3, 8, 15, 22):
            expected.append(y)
    for seen, wanted in zip(ours(x), expected, strict=True):
        torch.testing.assert_close(seen, wanted)
    sizes = [(3, 64), (64, 64), (64, 128), (128, 128), (128, 256), (256, 256), (256, 256), (256, 512)]
    expected = sum(convolution(a, b, 3) for a, b in [*sizes, (512, 512), (512, 512)])
    assert sum(p.numel() for p in ours.parameters()) == expected == 7635264
    assert not any(p.requires_grad for p in ours.parameters())


def test_gram_matrix():
    x = torch.randn(2, 3, 4, 5)
    expected = torch.einsum("nchw,ndhw->ncd", x, x) / (3 * 4 * 5)
    torch.testing.assert_close(models.gram_matrix(x), expected)
