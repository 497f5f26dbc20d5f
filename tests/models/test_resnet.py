# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite.data import import_torchvision
from dnnsuite.errors import InvalidArgument
from dnnsuite.models import ResNet18, ResNet50


@pytest.mark.parametrize(("classes", "small", "count"), [(1000, False, 25_557_032), (100, True, 23_712_932)])
def test_parameters(classes, small, count):
    with torch.device("meta"):
        model = ResNet50(classes, small=small)
    assert sum(each.numel() for each in model.parameters()) == count
    assert len(list(model.parameters())) == 161
    assert sum(each.numel() for each in model.buffers()) == 53_173


def test_names_and_results_are_torchvisions():
    models = import_torchvision().models
    theirs = models.resnet50(num_classes=7).eval()
    ours = ResNet50(7).eval()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(1, 3, 64, 64)
    torch.testing.assert_close(ours(x), theirs(x))


def test_small_pictures_keep_their_resolution():
    model = ResNet50(10, width=4, small=True)
    seen = []
    for name in ("conv1", "layer1", "layer2", "layer3", "layer4"):
        getattr(model, name).register_forward_hook(lambda module, inputs, output: seen.append(tuple(output.shape[1:])))
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 10)
    assert seen == [(4, 32, 32), (16, 32, 32), (32, 16, 16), (64, 8, 8), (128, 4, 4)]


def test_refuses_nothing_to_classify():
    with pytest.raises(InvalidArgument, match="classes=0"):
        ResNet50(0)


def test_is_torchvisions_at_the_papers_width():
    own, other = ResNet18(10).eval(), import_torchvision().models.resnet18(num_classes=10).eval()
    assert sum(p.numel() for p in own.parameters()) == 11_181_642
    own.load_state_dict(other.state_dict())
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(own(x), other(x))


def test_shapes_on_images_of_32():
    model, x, shapes = ResNet18(10, width=8), torch.randn(2, 3, 32, 32), []
    for name in ("maxpool", "layer1", "layer2", "layer3", "layer4"):
        model.get_submodule(name).register_forward_hook(lambda m, x, y: shapes.append(tuple(y.shape[1:])))
    assert model(x).shape == (2, 10)
    assert shapes == [(8, 8, 8), (8, 8, 8), (16, 4, 4), (32, 2, 2), (64, 1, 1)]
