# SPDX-License-Identifier: MIT
import torch

from dnnsuite import data
from dnnsuite.models import ResNet18


def test_is_torchvisions_at_the_papers_width():
    own, other = ResNet18(10).eval(), data.import_torchvision().models.resnet18(num_classes=10).eval()
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
