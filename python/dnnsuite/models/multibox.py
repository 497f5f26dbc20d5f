# SPDX-License-Identifier: MIT
"""Detection by default boxes: the boxes, their matching with objects, and the loss (Liu et al., SSD, ECCV 2016).

Boxes are in fractions of the image's sides: `ltrb` is left, top, right and bottom, `xywh` centre and size.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

# Of SSD300 on COCO: six maps of features, their steps in pixels, the sizes of boxes, and the ratios of their sides.
_IMAGE = 300
_MAPS = (38, 19, 10, 5, 3, 1)
_STEPS = (8, 16, 32, 64, 100, 300)
_SIZES = (21, 45, 99, 153, 207, 261, 315)
_RATIOS = ((2,), (2, 3), (2, 3), (2, 3), (2,), (2,))
_SCALE_XY, _SCALE_WH = 0.1, 0.2  # "variances": regression is in units of these
_NEGATIVES = 3  # for each default box that finds something, this many that find nothing count


def default_boxes() -> Tensor:
    """Return the 8732 boxes of SSD300, `[8732, 4]` as xywh: by map, then by shape, then by row and column."""
    boxes = []
    for i, cells in enumerate(_MAPS):
        small, large = _SIZES[i] / _IMAGE, math.sqrt(_SIZES[i] * _SIZES[i + 1]) / _IMAGE
        shapes = [(small, small), (large, large)]
        for ratio in _RATIOS[i]:
            wide, narrow = small * math.sqrt(ratio), small / math.sqrt(ratio)
            shapes += [(wide, narrow), (narrow, wide)]
        in_map = _IMAGE / _STEPS[i]
        for (w, h), row, column in itertools.product(shapes, range(cells), range(cells)):
            boxes.append(((column + 0.5) / in_map, (row + 0.5) / in_map, w, h))
    return torch.tensor(boxes).clamp(0, 1)


def to_ltrb(xywh: Tensor) -> Tensor:
    """Convert boxes `[..., 4]` of centre and size to left, top, right, bottom."""
    centre, half = xywh[..., :2], xywh[..., 2:] / 2
    return torch.cat((centre - half, centre + half), -1)


def to_xywh(ltrb: Tensor) -> Tensor:
    """Convert boxes `[..., 4]` of left, top, right, bottom to centre and size."""
    first, last = ltrb[..., :2], ltrb[..., 2:]
    return torch.cat(((first + last) / 2, last - first), -1)


def overlap(a: Tensor, b: Tensor) -> Tensor:
    """Compute intersection over union of boxes ltrb `[A, 4]` and `[B, 4]`: `[A, B]`."""
    first = torch.maximum(a[:, None, :2], b[None, :, :2])
    last = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    common = (last - first).clamp(min=0).prod(2)
    area_a, area_b = ((x[:, 2:] - x[:, :2]).prod(1) for x in (a, b))
    return common / (area_a[:, None] + area_b[None, :] - common)


def match(boxes: Tensor, labels: Tensor, defaults: Tensor, threshold: float = 0.5) -> tuple[Tensor, Tensor]:
    """Assign a target to each default box.

    Each box is found by the default box that overlaps it most, and by all that overlap it by more than `threshold`
    and no other more. Where two boxes want the same default box, the later has it.

    Args:
        boxes: ltrb `[G, 4]`; G may be 0.
        labels: `[G]`, 1 or more.
        defaults: xywh `[D, 4]`.

    Returns:
        Target boxes, xywh `[D, 4]` (the default box itself where there is none), and their labels `[D]`, 0 for none.
    """
    found_labels = torch.zeros(len(defaults), dtype=torch.int64)
    if not len(boxes):
        return defaults.clone(), found_labels
    shared = overlap(boxes, to_ltrb(defaults))  # [G, D]
    best, which = shared.max(0)
    wanted = shared.argmax(1)
    for g, d in enumerate(wanted.tolist()):
        best[d], which[d] = 2.0, g
    taken = best > threshold
    found_labels[taken] = labels[which[taken]]
    return torch.where(taken[:, None], to_xywh(boxes)[which], defaults), found_labels


def multibox_loss(offsets: Tensor, logits: Tensor, boxes: Tensor, labels: Tensor, defaults: Tensor) -> Tensor:
    """Compute the mean over images of (smooth L1 of the offsets + cross-entropy) / matched default boxes; `[]`.

    Cross-entropy counts the matched boxes and three times as many of the worst unmatched ones. An image without a match
    counts 0.

    Args:
        offsets: `[N, 4, D]`, of centre and size.
        logits: `[N, C, D]`.
        boxes, labels: results of `match`, `[N, D, 4]` and `[N, D]`.
        defaults: xywh `[D, 4]`.
    """
    positive = labels > 0
    count = positive.sum(1)
    target = torch.cat(
        (
            (boxes[..., :2] - defaults[:, :2]) / defaults[:, 2:] / _SCALE_XY,
            (boxes[..., 2:] / defaults[:, 2:]).log() / _SCALE_WH,
        ),
        2,
    ).transpose(1, 2)
    location = torch.nn.functional.smooth_l1_loss(offsets, target, reduction="none").sum(1)
    surprise = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    rank = surprise.detach().masked_fill(positive, 0.0).argsort(1, descending=True).argsort(1)
    hard = rank < (_NEGATIVES * count).clamp(max=labels.size(1)).unsqueeze(1)
    total = (location * positive).sum(1) + (surprise * (positive.float() + hard.float())).sum(1)
    return (total * (count > 0) / count.clamp(min=1)).mean()
