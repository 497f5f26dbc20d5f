# SPDX-License-Identifier: MIT
"""Rules by which a convolution on a CPU is this package's, or torch's in one layout or the other, as measured; and
what the rules choose: products of windows and of whole maps.

torch's convolution of whole maps, the last layer of a LeNet or of a DCGAN's discriminator, takes 2 to 10 times as long
(`benchmarks/ops/bench_convolution.py`); in 16 bits also the first one of its generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ... import ops
from ...ops import instruction_set
from ...ops.device import on_cpu
from ...ops.shared import is_shared, once
from ...ops.windows import output_pixels
from .._models import computable, match

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
    values = sizes_of(size)
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


def whole_map(x: Tensor, weight: Tensor, padding: tuple[int, int]) -> tuple[Tensor, Tensor] | None:
    """Return maps `[B, N, 1, 1, I * H * W]` and a matrix `[B, O, I * H * W]` whose product is the convolution of one
    group; None if the filters do not cover the whole map.

    If their memory orders differ, the smaller one is copied.
    """
    if weight.shape[3:] != x.shape[3:] or padding != (0, 0):
        return None
    if weight[0].numel() < x[0].numel() and x.movedim(2, -1).is_contiguous():
        x, weight = x.movedim(2, -1), weight.movedim(2, -1)
    rows = once(lambda one: one.flatten(2), x)
    return rows[:, :, None, None], weight.flatten(2)


def from_single_pixels(input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor | None:
    """Compute the transposed convolution of maps of one pixel `[B, N, I, 1, 1]`, weight `[B, I, O, H, W]`; None for
    others."""
    stride, padding, output_padding, groups, dilation = rest
    single = input.dim() == 5 and input.shape[3:] == (1, 1) and groups == 1 and input.size(0) > 0
    if not (single and on_cpu(input) and input.size(2) == weight.size(1)):
        return None
    plain = all(set(sizes_of(size)) <= {value} for size, value in ((padding, 0), (output_padding, 0), (dilation, 1)))
    autocast = torch.is_autocast_enabled("cpu") and torch.float64 not in (input.dtype, weight.dtype)
    alike = autocast or input.dtype == weight.dtype
    if not (plain and alike and input.is_floating_point() and min(sizes_of(stride)) > 0):
        return None
    wide = computable(weight)
    y = ops.matmul(match(computable(input), wide).flatten(2), wide.flatten(2)).unflatten(-1, weight.shape[2:])
    if bias is not None:
        y = y + match(bias, wide)[:, None, :, None, None]
    return y.to(torch.get_autocast_dtype("cpu") if autocast else input.dtype)


def sizes_of(size: Any) -> tuple[int, ...]:
    """Convert a stride, padding or dilation to a tuple: one number for all dimensions, or one for each."""
    return (size,) if isinstance(size, int) else tuple(size)


FEW_FILTERS, FEW_TRANSPOSED = 16, 131072
"""With fewer filters in a group, vectors of one model's windows up to which products are quicker than torch's
transposed convolution, channels last: 1.0 to 4 times its rate; half of it at 300,000 (`benchmarks/ops/grid.py`)."""


def _is_quicker(input: Tensor, weight: Tensor, groups: int) -> bool:
    outputs, height, width = weight.shape[2:]
    runs, length = (height, width * outputs) if groups == 1 else (groups * height * width, outputs)
    vectors = input.size(1) * input.shape[3:].numel() * runs * -(-length // VECTOR)
    return input.size(2) >= FEW_FILTERS * groups or vectors <= FEW_TRANSPOSED


def takes_windows(input: Tensor, weight: Tensor) -> bool:
    """Return True if windows can be cut out of `input`: on a CPU, both in float32 or float64, without autocast."""
    known = input.dtype == weight.dtype and input.dtype in (torch.float32, torch.float64)
    return known and on_cpu(input) and not torch.is_autocast_enabled("cpu")


def transposed_of_windows(input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor | None:
    """Return the transposed convolution of images `[B, N, I, H, W]` with filters `[B, I, O, KH, KW]`: a product,
    whose windows are added up; None where the library's is quicker."""
    stride, padding, output_padding, groups, dilation = rest
    if input.dim() != 5 or not takes_windows(input, weight) or input.numel() == 0:
        return None
    if input.size(2) != weight.size(1) or groups < 1 or input.size(2) % groups != 0:
        return None
    outputs = weight.size(2) * groups
    if bias is not None and (bias.size(1) != outputs or bias.dtype != weight.dtype):
        return None
    steps, edges, more, apart = pair(stride), pair(padding), pair(output_padding), pair(dilation)
    if min(*steps, *apart) < 1 or min(*edges, *more) < 0 or any(m >= s for m, s in zip(more, steps, strict=True)):
        return None
    ends = zip(input.shape[3:], weight.shape[3:], steps, edges, apart, more, strict=True)
    sides = [(n - 1) * s - 2 * p + d * (k - 1) + 1 + m for n, k, s, p, d, m in ends]
    if min(sides) < 1:
        return None
    if 1 < groups == input.size(2) == outputs:
        return ops.transposed_depthwise(input, weight, bias, steps, edges, apart, sides)
    row = groups == 1 and apart[1] == steps[0] == weight.size(3) == 1 and steps[1] == weight.size(4)
    if row and edges == more == (0, 0):
        return _side_by_side(input, weight, bias)
    if not _is_quicker(input, weight, groups):
        return None
    return ops.transposed_convolution(input, weight, bias, steps, edges, apart, groups, sides)


def _side_by_side(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute the transposed convolution of rows of taps `[B, I, O, 1, K]` that are as long as the stride: a product,
    whose windows lie where they belong."""
    outputs, taps = weight.size(2), weight.size(4)
    filters = weight.squeeze(3).permute(0, 3, 2, 1).flatten(1, 2)  # [B, K * O, I]
    offsets = None if bias is None else bias.repeat(1, taps)
    rows = once(lambda one: one.movedim(2, -1).contiguous(), input)
    return ops.linear(rows, filters, offsets).unflatten(-1, (taps, outputs)).flatten(3, 4).movedim(-1, 2)


Triple = tuple[int, int, int]

VOLUME_PRODUCTS, VOLUME_VECTORS = 32_000_000, 49_152
"""Multiplications of one model up to which products of windows are quicker than oneDNN's convolution, channels last:
1.1 times its rate at 28,000,000, 0.89 times at 43,000,000. Of a group of few channels, vectors of one model's windows
up to which they are: cutting them is most of the work (`benchmarks/ops/grid.py`)."""

FEW_OUTPUTS = 16
"""Gradients of volumes of `FIRST_CHANNELS` are products of windows from `MANY_OUTPUTS` filters on, from `FEW_OUTPUTS`
on with a stride: 1.2 to 2.8 times oneDNN's rate."""

FEW_NUMBERS = 20_480
"""Numbers of a single sample, without its width, up to which torch does not ask oneDNN."""


def triple(size: Size) -> Triple:
    """Convert a stride, padding or dilation of volumes to three numbers."""
    values = sizes_of(size)
    return values * 3 if len(values) == 1 else values  # type: ignore[return-value]


def is_pointwise(input: Tensor, weight: Tensor, stride: Size, padding: str | Size, dilation: Size, groups: int) -> bool:
    """Return True for filters of one tap that meet each pixel of volumes once: those of images do the same."""
    if input.dim() != 6 or weight.shape[3:] != (1, 1, 1) or not on_cpu(input):
        return False
    return not isinstance(padding, str) and (triple(stride), triple(padding)) == ((1, 1, 1), (0, 0, 0))


def volume_convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Size, padding: str | Size, dilation: Size, groups: int
) -> Tensor | None:
    """Convolve volumes `[B, N, I, D, H, W]` with filters `[B, O, I / groups, KD, KH, KW]`; None where torch's
    convolution is quicker, or has an error message for it."""
    if input.dim() != 6 or isinstance(padding, str) or not takes_windows(input, weight):
        return None
    if bias is not None and (bias.dtype != weight.dtype or bias.size(1) != weight.size(1)):
        return None
    steps = triple(stride), triple(padding), triple(dilation)
    if groups < 1 or not fits(input, weight, *steps, groups):
        return None
    if not _pays(input, weight, *steps, groups):
        return None
    return ops.window_convolution(input, weight, bias, *steps, groups)


def _pays(
    input: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int
) -> bool:
    """Return True if products of windows are quicker than torch's convolution."""
    inputs, planes, height, width = weight.shape[2:]
    pixels = input.size(1) * output_pixels(input.shape[3:], weight.shape[3:], stride, padding, dilation)
    products = pixels * weight.shape[1:].numel()
    if ON_OLD:
        return products <= FEW_ON_OLD
    if inputs > 1 and groups == 1 and not _is_for_onednn(input, weight, stride, dilation):
        return True
    if inputs >= VECTOR and groups == 1:
        return products <= VOLUME_PRODUCTS
    if input.requires_grad and groups == 1 and _fills_registers(weight, stride):
        return True
    runs, length = (1, width * inputs) if groups == 1 and dilation[2] == 1 else (groups * width, inputs)
    return pixels * planes * height * runs * -(-length // VECTOR) <= VOLUME_VECTORS


def _fills_registers(weight: Tensor, stride: Sequence[int]) -> bool:
    """Return True for filters of few channels that are many, or apart."""
    outputs, inputs = weight.shape[1:3]
    if min(stride) > 1:
        return outputs >= (FEW_OUTPUTS if inputs <= FIRST_CHANNELS else MANY_OUTPUTS)
    return inputs <= FIRST_CHANNELS and outputs >= MANY_OUTPUTS


def _is_for_onednn(input: Tensor, weight: Tensor, stride: Sequence[int], dilation: Sequence[int]) -> bool:
    """Return True if torch asks oneDNN to convolve in one group. Its own convolution, which it takes else, is 2 to 5
    times as slow."""
    samples, (height, width) = input.size(1), weight.shape[-2:]
    apart = (*stride, *dilation) != (1,) * 6
    if input.dtype != torch.float32 or not (apart or samples >= 16 or (height, width) != (1, 1)):
        return False
    return samples > 1 or min(height, width) > 3 or input.shape[2:5].numel() > FEW_NUMBERS
