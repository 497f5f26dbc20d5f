# SPDX-License-Identifier: MIT
"""SC20's augmentation of small pictures, for a whole batch at once: shift, mirror, turn, normalise."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch.nn.functional import affine_grid, grid_sample, pad

from ..data.cifar import ColourPictures

__all__ = ["AugmentedPictures", "augment"]

_PADDING = 4  # pixels around a picture from which the random part is cut


def augment(images: torch.Tensor, draws: torch.Tensor, degrees: float) -> torch.Tensor:
    """Shift by up to four pixels, mirror every second picture, turn by up to `degrees` to the nearest pixel.

    Args:
        images: float `[N, 3, H, W]`; what moves in from outside is 0.
        draws: uniform in [0, 1) `[N, 4]`: of the row, the column, the mirror and the angle.
    """
    count, _, height, width = images.shape
    shifts = (draws[:, :2] * (2 * _PADDING + 1)).long()
    rows = shifts[:, :1] + torch.arange(height)
    columns = shifts[:, 1:] + torch.arange(width)
    columns = torch.where(draws[:, 2:3] < 0.5, columns.flip(1), columns)
    padded = pad(images, (_PADDING,) * 4).permute(0, 2, 3, 1)
    batch = torch.arange(count)[:, None, None]
    moved = padded[batch, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    return _turned(moved, (2 * draws[:, 3] - 1) * math.radians(degrees)) if degrees else moved.contiguous()


def _turned(images: torch.Tensor, radians: torch.Tensor) -> torch.Tensor:
    cosine, sine, zero = radians.cos(), radians.sin(), torch.zeros_like(radians)
    turn = torch.stack([cosine, -sine, zero, sine, cosine, zero], 1).view(-1, 2, 3)
    grid = affine_grid(turn, list(images.shape), align_corners=False)
    return grid_sample(images, grid, mode="nearest", align_corners=False)


class AugmentedPictures:
    """Pictures in memory, by the batch.

    What is drawn for a sample depends on seed, epoch and its index alone: not on the batch, the process or the worker.

    Args:
        pictures: pictures with labels.
        mean, std: mean and deviation of red, green and blue in [0, 1].
        degrees: largest turn of the augmentation; None for no augmentation.
        most: number of pictures, the first ones; 0 for all.
    """

    def __init__(
        self,
        pictures: ColourPictures,
        mean: Sequence[float],
        std: Sequence[float],
        degrees: float | None = None,
        seed: int = 0,
        most: int = 0,
    ) -> None:
        kept = most or len(pictures.labels)
        self._images = torch.from_numpy(pictures.images[:kept].copy())
        self._labels = torch.from_numpy(pictures.labels[:kept].copy())
        # Normalised before it is padded, 0 would be the mean's grey; the original's border is black.
        self._mean, self._std = (torch.tensor(list(each)).view(3, 1, 1) for each in (mean, std))
        self._degrees, self._seed = degrees, seed
        self._drawn: tuple[int, torch.Tensor] | None = None

    @property
    def fixed(self) -> list[object]:
        """All that decides its batches, but for the epoch."""
        return [self._images, self._labels, self._mean, self._std, self._degrees, self._seed]

    def __len__(self) -> int:
        return len(self._labels)

    def share_memory_with(self, other: AugmentedPictures) -> bool:
        """Use the pictures of `other` if they are the same; return True if so."""
        same = torch.equal(self._images, other._images) and torch.equal(self._labels, other._labels)
        if same:
            self._images, self._labels = other._images, other._labels
        return same

    def batch(self, indices: Sequence[int], epoch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Pictures float32 `[N, 3, 32, 32]`, normalised, and labels int64 `[N]`."""
        chosen = torch.as_tensor(indices)
        images = self._images[chosen].float().div_(255)
        if self._degrees is not None:
            images = augment(images, self._draws(epoch)[chosen], self._degrees)
        return images.sub_(self._mean).div_(self._std), self._labels[chosen]

    def _draws(self, epoch: int) -> torch.Tensor:
        """Draws of all samples `[len, 4]` in an epoch, kept while the epoch lasts."""
        if self._drawn is None or self._drawn[0] != epoch:
            seed = ((self._seed & 0xFFFFFFFF) << 31) ^ (epoch * 0x85EBCA6B & 0x7FFFFFFF) ^ 1
            generator = torch.Generator().manual_seed(seed)
            self._drawn = epoch, torch.rand(len(self), 4, generator=generator)
        return self._drawn[1]
