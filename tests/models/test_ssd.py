# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite.data import import_torchvision
from dnnsuite.errors import InvalidArgument
from dnnsuite.models.ssd import SSD300


def test_maps_of_six_sizes_and_heads_in_the_order_of_the_default_boxes():
    torch.manual_seed(0)
    model = SSD300(3).eval()
    images = torch.randn(1, 3, 300, 300)
    with torch.no_grad():
        offsets, logits = model(images)
        first = model.backbone(images)
        second = model.extras[0](first)
        head = model.logits[1](second)[0]  # [6 · 3, 19, 19]
    assert (offsets.shape, logits.shape) == ((1, 4, 8732), (1, 3, 8732))
    assert (first.shape, second.shape) == ((1, 256, 38, 38), (1, 512, 19, 19))
    at = 38 * 38 * 4
    torch.testing.assert_close(logits[0, :, at : at + 19 * 19 * 6].flatten(), head.flatten())


def test_weights_of_a_backbone():
    torch.manual_seed(0)
    weights = import_torchvision().models.resnet34().state_dict()
    model = SSD300(3, weights)
    assert torch.equal(model.backbone[6][0].conv1.weight, weights["layer3.0.conv1.weight"])
    with pytest.raises(InvalidArgument, match=r"not the weights of a ResNet-34: .*Missing key"):
        SSD300(3, {"conv1.weight": weights["conv1.weight"]})
