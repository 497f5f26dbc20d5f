# SPDX-License-Identifier: MIT
"""Rules by which a convolution on a CPU is this package's, or torch's in one layout or the other, as measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ...ops import instruction_set
from ...ops.device import on_cpu
from ...ops.shared import is_shared
from ...ops.windows import output_pixels

Size = int | Sequence[int]
Pair = tuple[int, int]

MANY_OUTPUTS, MANY_PRODUCTS, PRODUCTS_OF_ONE = 32, 150_000_000, 60_000_000
"""Filters of a group that fill the registers; and multiplications of one model, with windows that overlap, up to which
products of windows are quicker than torch's convolution, channels last: 0.8 times at 2,000,000,000. `PRODUCTS_OF_ONE`:
the same of filters that fill one vector, 0.85 times at 100,000,000. Fewer fill none, and leave torch's idle too. Images
whose channels fill no vector, as at the begin of a network, have no limit: 1.2 to 2.2 times torch's rate."""

FEW_SAMPLES, NEAR_NUMBERS, MOSTLY = 8, 16384, 0.5
"""Samples from which, and numbers of one up to which, in several groups, products are made position by position. Then
taps on the padding take no time; where that is `MOSTLY` the case, it is 1.3 to 10 times torch's rate."""

FEW_VECTORS, NEW_GRADIENT = 49152, 3
"""Where a row of taps is not one run of the image's numbers, and its runs or filters fill no vector: vectors of one
model's windows up to which products are quicker. Cutting windows is then most of the work. Adding windows up to a
gradient of the images costs `NEW_GRADIENT` - 1 times as much as cutting."""

FEW_TAPS = 16384
"""Numbers of one model's filters up to which taps that are all on the padding but one are not worth a view."""

ON_OLD, FEW_ON_OLD = instruction_set() == "generic", 1_000_000
"""On a processor without AVX2, multiplications of one model up to which they are quicker."""

VECTOR = 16
"""Numbers that are copied at once."""

FIRST_CHANNELS, FOUR_VECTORS = 3, 64
"""Channels of a network's input, and filters of them from which products are quicker, whose rows of taps are no runs as
well: 1.0 to 2.0 times oneDNN's rate, which is 0.8 to 1.0 in this package's layout."""


def pair(size: Size) -> Pair:
    """Convert a stride, padding or dilation of images to two numbers."""
    if isinstance(size, int):
        return size, size
    values = tuple(size)
    return values * 2 if len(values) == 1 else values  # type: ignore[return-value]


def fits(
    input: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int
) -> bool:
    """Return True if filters fit the images, and the result is not empty; else torch's error message is used."""
    outputs, inputs = weight.shape[1:3]
    if input.size(2) != inputs * groups or outputs % groups != 0 or input.numel() == 0:
        return False
    room = zip(input.shape[3:], weight.shape[3:], stride, padding, dilation, strict=True)
    return all(s > 0 and d > 0 and p >= 0 and d * (k - 1) < n + 2 * p for n, k, s, p, d in room)


def is_grouped_sample(plain: Any, dims: int, input: Tensor, weight: Tensor, groups: int) -> bool:
    """Return True for one sample of each model in groups of channels, as those of a StyleGAN2 are, whose groups are the
    samples of a batch with weights of their own."""
    if groups < 2 or input.dim() != dims + 3 or input.size(1) != 1 or input.size(2) % groups != 0:
        return False
    transposed = plain.__name__.startswith("conv_transpose")
    inputs = weight.size(1) if transposed else weight.size(2) * groups
    return input.size(2) == inputs and weight.size(1) % groups == 0


def pays_as_models(plain: Any, input: Tensor, weight: Tensor, groups: int) -> bool:
    """Return True if groups of one sample are better taken for models of their own: of filters of one tap, which
    multiply pixels, on contiguous images. Elsewhere each group's images would be copied."""
    direct = input.size(2) >= VECTOR * groups and not plain.__name__.startswith("conv_transpose")
    return direct and weight.shape[3:].numel() == 1 and not is_shared(input) and input[0, 0].is_contiguous()


def lies_whole(images: Tensor) -> bool:
    """Return True for images that are contiguous one by one."""
    height, width = images.shape[3:]
    return images.stride()[2:] == (height * width, width, 1)


def padding_of(name: str, weight: Tensor, stride: Size, dilation: Size) -> str | tuple[int, ...]:
    """Convert padding "valid" or "same" to numbers; unchanged where both sides differ, or torch has an error for it."""
    sides = weight.shape[3:]
    if name == "valid":
        return (0,) * len(sides)
    steps = (dilation,) * len(sides) if isinstance(dilation, int) else tuple(dilation) * len(sides)
    whole = [d * (k - 1) for d, k in zip(steps, sides, strict=False)]
    plain = stride == 1 or (not isinstance(stride, int) and set(stride) == {1})
    return tuple(w // 2 for w in whole) if name == "same" and plain and not any(w % 2 for w in whole) else name


def single_tap(input: Tensor, weight: Tensor, stride: Pair, padding: Pair, dilation: Pair) -> Pair | None:
    """Return the only tap of filters that meets maps of one pixel with one result; None for others, and other maps.

    All other taps are on the padding, so a 3 x 3 filter needs a ninth of the work.
    """
    if input.shape[3:] != (1, 1) or weight.shape[3:] == (1, 1):
        return None
    if any(p % d for p, d in zip(padding, dilation, strict=True)):
        return None
    row, column = (p // d for p, d in zip(padding, dilation, strict=True))
    ends = zip(weight.shape[3:], stride, padding, dilation, strict=True)
    alone = all((2 * p - d * (k - 1)) // s == 0 and p // d < k for k, s, p, d in ends)
    return (row, column) if alone else None


FILLED = 16
"""Channels that go in from which oneDNN's convolutions of one tap fill a block on every CPU."""


def steps_go_wrong(input: Tensor, weight: Tensor, stride: Size, padding: str | Size, *rest: Any) -> bool:
    """Return True for filters of one tap and few channels with a stride, channels last on a CPU: torch's gradient of
    such filters is wrong, or the process crashes, in oneDNN before it is mended
    (https://github.com/uxlfoundation/oneDNN/issues/6035). The pixels have to be taken before."""
    if input.dim() != 5 or not on_cpu(input) or weight.shape[3:] != (1, 1) or weight.size(2) >= FILLED:
        return False
    padded = padding != "valid" if isinstance(padding, str) else pair(padding) != (0, 0)
    return not padded and pair(stride) != (1, 1) and min(pair(stride)) > 0


def _is_pixelwise(weight: Tensor, stride: Pair, padding: Pair) -> bool:
    """Return True for filters of one tap that meet each pixel once, and nothing else."""
    return weight.shape[3:] == (1, 1) and stride == (1, 1) and padding == (0, 0)


def is_outer(input: Tensor, weight: Tensor, stride: Pair, padding: Pair) -> bool:
    """Return True for filters of one tap and one channel: a column of pixels times a row of filters."""
    return input.size(2) == 1 and _is_pixelwise(weight, stride, padding)


def is_pixel_product(input: Tensor, weight: Tensor, stride: Pair, padding: Pair, groups: int) -> bool:
    """Return True for filters of one tap, fewer than channels, on contiguous images whose pixels fill a vector: to lay
    them out with the channels last, forward and again backward, would take longer than to lay out the result."""
    if groups != 1 or not _is_pixelwise(weight, stride, padding):
        return False
    if input.size(2) <= weight.size(1) or input.shape[3:].numel() < VECTOR:
        return False
    return lies_whole(input)


def _seen_part(side: int, kernel: int, stride: int, padding: int, dilation: int) -> float:
    """Return the part of the taps of one dimension, over all results, that are not on the padding."""
    begins = range(-padding, side + padding - dilation * (kernel - 1), stride)
    seen = sum(0 <= begin + dilation * k < side for begin in begins for k in range(kernel))
    return seen / (len(begins) * kernel)


def is_mostly_padding(input: Tensor, weight: Tensor, stride: Pair, padding: Pair, dilation: Pair, results: int) -> bool:
    """Return True for small maps whose filters lie on the padding more than on the images, `results` pixels of each."""
    sides = input.shape[3:]
    numbers = input.size(2) * sides.numel() + weight.size(1) * results
    if input.size(1) < FEW_SAMPLES or numbers > NEAR_NUMBERS or max(sides) > max(weight.shape[3:]):
        return False
    height, width = map(_seen_part, sides, weight.shape[3:], stride, padding, dilation)
    return height * width <= MOSTLY


def pays_in_windows(input: Tensor, weight: Tensor, stride: Pair, padding: Pair, dilation: Pair, groups: int) -> bool:
    """Return True if products of windows are quicker than torch's convolution."""
    outputs, inputs, height, width = weight.shape[1:]
    results = output_pixels(input.shape[3:], weight.shape[3:], stride, padding, dilation)
    pixels = input.size(1) * results
    products = pixels * outputs * inputs * height * width
    if ON_OLD:
        return products <= FEW_ON_OLD
    if (groups == 1 and dilation[1] == 1) or (outputs >= MANY_OUTPUTS * groups and inputs >= VECTOR):
        apart = height <= stride[0] and width <= stride[1]
        begin = inputs < VECTOR and outputs >= MANY_OUTPUTS
        one = VECTOR <= outputs // groups < MANY_OUTPUTS
        return apart or begin or products <= (PRODUCTS_OF_ONE if one else MANY_PRODUCTS)
    if groups == 1 and outputs >= FOUR_VECTORS and inputs <= (FIRST_CHANNELS if height * width > 3 else 1):
        return True
    vectors = pixels * groups * height * width * -(-inputs // VECTOR)
    if vectors * (NEW_GRADIENT if input.requires_grad else 1) <= NEW_GRADIENT * FEW_VECTORS:
        return True
    return is_mostly_padding(input, weight, stride, padding, dilation, results)
