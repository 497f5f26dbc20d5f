# SPDX-License-Identifier: MIT
"""Default boxes, matching and loss against their definitions, box by box."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dnnsuite.models import multibox

DEFAULTS = multibox.default_boxes()


def test_default_boxes():
    assert DEFAULTS.shape == (8732, 4)
    assert 38 * 38 * 4 + 19 * 19 * 6 + 10 * 10 * 6 + 5 * 5 * 6 + 3 * 3 * 4 + 4 == 8732
    assert DEFAULTS[0].tolist() == pytest.approx([4 / 300, 4 / 300, 0.07, 0.07])
    assert DEFAULTS[1].tolist() == pytest.approx([12 / 300, 4 / 300, 0.07, 0.07])  # columns before rows
    large = math.sqrt(21 * 45) / 300
    assert DEFAULTS[38 * 38].tolist() == pytest.approx([4 / 300, 4 / 300, large, large])
    wide = 0.07 * math.sqrt(2)
    assert DEFAULTS[2 * 38 * 38].tolist() == pytest.approx([4 / 300, 4 / 300, wide, 0.0049 / wide])
    assert DEFAULTS[-4].tolist() == pytest.approx([0.5, 0.5, 0.87, 0.87])
    assert DEFAULTS.min() >= 0
    assert DEFAULTS.max() <= 1


def test_overlap_by_hand():
    a = torch.tensor([[0.0, 0.0, 2.0, 2.0]])
    b = torch.tensor([[1.0, 1.0, 3.0, 3.0], [0.0, 0.0, 2.0, 2.0], [2.0, 0.0, 4.0, 2.0], [0.5, 0.5, 1.5, 1.5]])
    assert multibox.overlap(a, b)[0].tolist() == pytest.approx([1 / 7, 1.0, 0.0, 0.25])


@given(st.lists(st.tuples(*[st.floats(0, 1)] * 4), min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_two_ways_to_say_a_box(boxes):
    xywh = torch.tensor(boxes)
    torch.testing.assert_close(multibox.to_xywh(multibox.to_ltrb(xywh)), xywh, atol=1e-6, rtol=1e-5)


def test_matching_by_hand():
    defaults = torch.tensor(
        [[0.25, 0.25, 0.5, 0.5], [0.75, 0.75, 0.5, 0.5], [0.3, 0.3, 0.5, 0.5], [0.7, 0.2, 0.1, 0.1]]
    )
    boxes = torch.tensor([[0.0, 0.0, 0.5, 0.5], [0.68, 0.18, 0.7, 0.2]])
    found, labels = multibox.match(boxes, torch.tensor([7, 9]), defaults)
    # The first box is default box 0, and more than half of number 2; the second, tiny, has number 3 all the same.
    assert labels.tolist() == [7, 0, 7, 9]
    expected = [[0.25, 0.25, 0.5, 0.5], [0.75, 0.75, 0.5, 0.5], [0.25, 0.25, 0.5, 0.5], [0.69, 0.19, 0.02, 0.02]]
    torch.testing.assert_close(found, torch.tensor(expected))


def test_every_box_is_found_unless_a_later_one_wants_the_same():
    random = torch.Generator().manual_seed(0)
    first = torch.rand(12, 2, generator=random) * 0.5
    boxes = torch.cat([first, first + 0.05 + 0.4 * torch.rand(12, 2, generator=random)], 1)
    _, labels = multibox.match(boxes, torch.arange(1, 13), DEFAULTS)
    assert set(labels.tolist()) == set(range(13))
    twice = boxes[:1].repeat(2, 1)
    _, labels = multibox.match(twice, torch.tensor([1, 2]), DEFAULTS)
    wanted = multibox.overlap(twice, multibox.to_ltrb(DEFAULTS))[0].argmax()
    assert labels[wanted] == 2
    found, labels = multibox.match(torch.empty(0, 4), torch.empty(0, dtype=torch.int64), DEFAULTS)
    assert not labels.any()
    assert torch.equal(found, DEFAULTS)


def test_loss_by_hand():
    torch.manual_seed(0)
    defaults = torch.rand(10, 4) * 0.5 + 0.2
    labels = torch.zeros(3, 10, dtype=torch.int64)
    labels[0, 2], labels[0, 7], labels[1, 4] = 3, 1, 2  # nothing in the third image
    boxes = torch.where(labels[..., None] > 0, torch.rand(3, 10, 4) * 0.5 + 0.2, defaults)
    offsets, logits = torch.randn(3, 4, 10), torch.randn(3, 5, 10)
    expected = 0.0
    for n in range(2):
        positive = [d for d in range(10) if labels[n, d] > 0]
        surprise = [-float(logits[n, :, d].softmax(0)[labels[n, d]].log()) for d in range(10)]
        worst = sorted((surprise[d] for d in range(10) if d not in positive), reverse=True)[: 3 * len(positive)]
        total = sum(surprise[d] for d in positive) + sum(worst)
        for d in positive:
            (bx, by, bw, bh), (x, y, w, h) = boxes[n, d].tolist(), defaults[d].tolist()
            target = [(bx - x) / w / 0.1, (by - y) / h / 0.1, math.log(bw / w) / 0.2, math.log(bh / h) / 0.2]
            for k in range(4):
                off = abs(float(offsets[n, k, d]) - target[k])
                total += off**2 / 2 if off < 1 else off - 0.5
        expected += total / len(positive)
    loss = multibox.multibox_loss(offsets, logits, boxes, labels, defaults)
    assert float(loss) == pytest.approx(expected / 3, rel=1e-5)
