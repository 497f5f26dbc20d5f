# SPDX-License-Identifier: MIT
"""Style transfer by a trained network (Johnson, Alahi and Fei-Fei, ECCV 2016), and the features it is judged by.

The layers are those of PyTorch's fast_neural_style example: instance normalization, nearest-neighbour upsampling.
"""

from __future__ import annotations

import torch
from torch import nn

# VGG-16 (Simonyan and Zisserman, ICLR 2015), configuration D, to relu4_3; 0 is a pooling.
_VGG16 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512)
_SEEN = (3, 8, 15, 22)  # the places of relu1_2, relu2_2, relu3_3 and relu4_3


class TransformerNet(nn.Module):
    """Map images `[N, 3, H, W]`, 0 to 255, to such images; H and W are multiples of 4. It has 1,679,235 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *_normalized(3, 32, 9),
            *_normalized(32, 64, 3, stride=2),
            *_normalized(64, 128, 3, stride=2),
            *(_Residual(128) for _ in range(5)),
            nn.Upsample(scale_factor=2),
            *_normalized(128, 64, 3),
            nn.Upsample(scale_factor=2),
            *_normalized(64, 32, 3),
            *_convolution(32, 3, 9),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class VGG16Features(nn.Sequential):
    """Four feature maps of normalised images `[N, 3, H, W]`: relu1_2, relu2_2, relu3_3, relu4_3. It is not trained.

    Its names are those of `features` in torchvision's vgg16. 7 635 264 parameters.
    """

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        channels = 3
        for filters in _VGG16:
            if filters:
                convolution = nn.Conv2d(channels, filters, 3, padding=1)
                nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(convolution.get_parameter("bias"))
                layers += [convolution, nn.ReLU(inplace=True)]
                channels = filters
            else:
                layers.append(nn.MaxPool2d(2))
        super().__init__(*layers)
        self.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        seen = []
        for place, layer in enumerate(self):
            x = layer(x)
            if place in _SEEN:
                seen.append(x)
        return seen


def gram_matrix(features: torch.Tensor) -> torch.Tensor:
    """Compute Gram matrices `[N, C, C]` of `[N, C, H, W]`: products of channels, summed over places, over C·H·W."""
    flat = features.flatten(2)
    return flat @ flat.transpose(1, 2) / (flat.shape[1] * flat.shape[2])


class StyleJudge(nn.Module):
    """`net`, which learns, and what `features` see: they compare its images with the content and a picture's style.

    Args:
        net, features: modules as TransformerNet and VGG16Features.
        style: normalised picture `[1, 3, H, W]`.
        content_weight, style_weight: weights of the two parts of the loss.
    """

    style0: torch.Tensor
    style1: torch.Tensor
    style2: torch.Tensor
    style3: torch.Tensor

    def __init__(
        self, net: nn.Module, features: nn.Module, style: torch.Tensor, content_weight: float, style_weight: float
    ) -> None:
        super().__init__()
        self.net, self.features = net, features
        self.weights = content_weight, style_weight
        for i, seen in enumerate(features(style)):
            self.register_buffer(f"style{i}", gram_matrix(seen))

    def difference(self, made: list[torch.Tensor], given: list[torch.Tensor]) -> torch.Tensor:
        """Compute the loss `[]` of the maps of images `made` from others that have the maps `given`."""
        mse, (content_weight, style_weight) = nn.functional.mse_loss, self.weights
        error = made[0].new_zeros(())
        for seen, style in zip(made, (self.style0, self.style1, self.style2, self.style3), strict=True):
            gram = gram_matrix(seen)
            error = error + mse(gram, style.expand_as(gram))
        return content_weight * mse(made[1], given[1]) + style_weight * error


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        first, second = (_normalized(channels, channels, 3) for _ in range(2))
        self.layers = nn.Sequential(*first, *second[:-1])  # without the last ReLU

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) + x


def _convolution(channels: int, filters: int, side: int, stride: int = 1) -> list[nn.Module]:
    return [nn.ReflectionPad2d(side // 2), nn.Conv2d(channels, filters, side, stride)]


def _normalized(channels: int, filters: int, side: int, stride: int = 1) -> list[nn.Module]:
    layers = _convolution(channels, filters, side, stride)
    return [*layers, nn.InstanceNorm2d(filters, affine=True), nn.ReLU()]
