# SPDX-License-Identifier: MIT
"""SSD300 on a ResNet-34 (Liu et al., ECCV 2016; as MLPerf trained it, v0.5)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from ..data import import_torchvision
from ..errors import InvalidArgument

_CHANNELS = (256, 512, 512, 256, 256, 256)  # of the six maps
_SHAPES = (4, 6, 6, 6, 4, 4)  # default boxes in a cell of each
_EXTRAS = ((256, 2, 1), (256, 2, 1), (128, 2, 1), (128, 1, 0), (128, 1, 0))  # between channels, stride, padding


class SSD300(nn.Module):
    """Images `[N, 3, 300, 300]` to offsets `[N, 4, 8732]` and logits `[N, C, 8732]` of the default boxes.

    The backbone is torchvision's ResNet-34 up to its third group, which keeps the resolution of 38; five more maps
    follow. The order of the boxes is that of `multibox.default_boxes`.

    Args:
        classes: number of classes C, the background among them.
        weights: the parameters of a whole torchvision ResNet-34; random without.
    """

    def __init__(self, classes: int = 81, weights: Mapping[str, torch.Tensor] | None = None) -> None:
        super().__init__()
        self.classes = classes
        resnet = import_torchvision().models.resnet34()
        if weights is not None:
            try:
                resnet.load_state_dict(weights)
            except RuntimeError as error:
                first = " ".join(str(error).split())[:200]  # it names every parameter
                raise InvalidArgument(f"these are not the weights of a ResNet-34: {first}") from error
        first = resnet.layer3[0]
        first.conv1.stride = first.downsample[0].stride = (1, 1)
        self.backbone = nn.Sequential(*list(resnet.children())[:7])
        self.extras = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(a, between, 1),
                nn.ReLU(inplace=True),
                nn.Conv2d(between, b, 3, stride, padding),
                nn.ReLU(inplace=True),
            )
            for a, b, (between, stride, padding) in zip(_CHANNELS, _CHANNELS[1:], _EXTRAS, strict=False)
        )
        self.offsets, self.logits = nn.ModuleList(), nn.ModuleList()
        for shapes, channels in zip(_SHAPES, _CHANNELS, strict=True):
            self.offsets.append(nn.Conv2d(channels, shapes * 4, 3, padding=1))
            self.logits.append(nn.Conv2d(channels, shapes * classes, 3, padding=1))
        for layers in (self.extras, self.offsets, self.logits):
            for parameter in layers.parameters():
                if parameter.dim() > 1:
                    nn.init.xavier_uniform_(parameter)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.backbone(images)
        maps = [x]
        for extra in self.extras:
            x = extra(x)
            maps.append(x)
        return self._heads(self.offsets, maps, 4), self._heads(self.logits, maps, self.classes)

    @staticmethod
    def _heads(heads: nn.ModuleList, maps: list[torch.Tensor], rows: int) -> torch.Tensor:
        """`[N, rows, boxes]`."""
        found = [head(x).reshape(len(x), rows, -1) for head, x in zip(heads, maps, strict=True)]
        return torch.cat(found, 2)
