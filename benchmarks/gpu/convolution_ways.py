# SPDX-License-Identifier: MIT
"""Every way to convolve on a GPU, forward and backward as a CUDA graph: how long each takes, and Triton's tiles one by
one.

    python benchmarks/gpu/convolution_ways.py --out DIR              # 10 shapes of 8 and of 32 models
    python benchmarks/gpu/convolution_ways.py --dtype bfloat16 --B 8 --seconds 30

`--out DIR` has convolution-ways.csv (B, shape, way, ms, of the best other: Triton's time over that of the fastest other
way) and triton-tiles.csv (B, shape, pass, tile, us, or why it does not run), each row written as soon as it is known.
A shape that fails is named with its reason, and the others go on; none begins after `--seconds`.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import command

from dnnsuite._ways import seconds
from dnnsuite.errors import InvalidArgument
from dnnsuite.nn import _triton_convolution as in_triton
from dnnsuite.nn._convolution_ways import convolution_ways

ROUNDS = 3
# Images [N, C, H, W] of one model, filters, and stride and padding.
SHAPES = {
    "resnet18 64-64 8x8": (F.conv2d, (32, 64, 8, 8), (64, 64, 3, 3), 1, 1),
    "resnet18 256-256 2x2": (F.conv2d, (32, 256, 2, 2), (256, 256, 3, 3), 1, 1),
    "resnet18 512-512 1x1": (F.conv2d, (32, 512, 1, 1), (512, 512, 3, 3), 1, 1),
    "resnet18 64-128 8x8 /2": (F.conv2d, (32, 64, 8, 8), (128, 64, 3, 3), 2, 1),
    "resnet18 3-64 k7 32x32 /2": (F.conv2d, (32, 3, 32, 32), (64, 3, 7, 7), 2, 3),
    "mobilenet 3-16 32x32 /2": (F.conv2d, (32, 3, 32, 32), (16, 3, 3, 3), 2, 1),
    "mobilenet 16-72 k1 8x8": (F.conv2d, (32, 16, 8, 8), (72, 16, 1, 1), 1, 0),
    "mobilenet 240-40 k1 2x2": (F.conv2d, (32, 240, 2, 2), (40, 240, 1, 1), 1, 0),
    "dcgan 16-32 k4 32x32 /2": (F.conv2d, (16, 16, 32, 32), (32, 16, 4, 4), 2, 1),
    "dcgan 64-32 k4 8x8 /2 transposed": (F.conv_transpose2d, (16, 64, 8, 8), (64, 32, 4, 4), 2, 1),
    "dcgan 16-3 k4 32x32 /2 transposed": (F.conv_transpose2d, (16, 16, 32, 32), (16, 3, 4, 4), 2, 1),
    "resnet18 128-128 28x28": (F.conv2d, (8, 128, 28, 28), (128, 128, 3, 3), 1, 1),
}


class Rows:
    """A CSV file that has each row as soon as it is known."""

    def __init__(self, folder: Path | None, name: str, columns: list[str]) -> None:
        self._file = (folder / name).open("w", encoding="utf-8", newline="") if folder else None
        self.add(columns)

    def add(self, values: list[Any]) -> None:
        if self._file:
            csv.writer(self._file).writerow(values)
            self._file.flush()


def tensors(name: str, B: int, dtype: torch.dtype, device: torch.device) -> tuple[Any, list[Any], tuple[Any, ...]]:
    """Return the function, its images with channels last and filters, and what it takes after the bias."""
    plain, shape, filters, stride, padding = SHAPES[name]
    x = torch.randn(B, *shape, device=device, dtype=dtype)
    if shape[1] > 3:  # what a layer before has made; the first layer's are as data come, without a gradient
        x = x.movedim(2, -1).contiguous().movedim(-1, 2).requires_grad_()
    weight = torch.randn(B, *filters, device=device, dtype=dtype).requires_grad_()
    rest: tuple[Any, ...] = (stride, padding, 1, 1) if plain is F.conv2d else (stride, padding, 0, 1, 1)
    return plain, [x, weight, None], rest


def tile_calls(name: str, inputs: list[Any], plain: Any, rest: Any) -> dict[tuple[str, str], Callable[[], Any]]:
    """List the launches of each pass in each tile that may be chosen."""
    x, w = (t.detach() for t in inputs[:2])
    transposed = plain is F.conv_transpose2d
    how = in_triton.precision()
    with torch.no_grad():
        like = plain(x[0], w[0], None, *rest)
    geometry = [rest[0], rest[0], rest[1], rest[1], 1, 1, 1, *like.shape[2:]]
    back = [*geometry[:7], *x.shape[3:]]
    dy = x.new_ones(len(x), *like.shape).movedim(2, -1).contiguous().movedim(-1, 2)
    images = (dy, x) if transposed else (x, dy)
    ops = torch.ops.dnnsuite
    found: dict[tuple[str, str], Callable[[], Any]] = {}
    for tile in in_triton.tiles(x, w, geometry, transposed):
        call = partial(ops.triton_convolution, x, w, None, geometry, transposed, how, tile)
        found["forward", " ".join(map(str, tile))] = call
    if inputs[0].requires_grad:
        for tile in in_triton.tiles(dy, w, back, not transposed):
            call = partial(ops.triton_convolution, dy, w, None, back, not transposed, how, tile)
            found["input", " ".join(map(str, tile))] = call
    for tile in in_triton.gradient_tiles(*images, w, geometry):
        call = partial(ops.triton_filter_gradient, *images, w, geometry, how, tile)
        found["filters", " ".join(map(str, tile))] = call
    return found


def one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def compiled(call: Callable[[], Any]) -> str:
    """Run once; return why it does not run, or nothing."""
    try:
        call()
    except Exception as error:  # whatever a compiler says: this tile is left out
        return one_line(error)
    return ""


def time_tiles(B: int, name: str, calls: dict[Any, Callable[[], Any]], device: torch.device, rows: Rows) -> None:
    begin = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        reasons = dict(zip(calls, pool.map(compiled, calls.values()), strict=True))
    torch.cuda.synchronize(device)
    took = time.monotonic() - begin
    print(f"  {len(calls)} tiles compiled in {took:.1f} s", flush=True)
    best: dict[str, tuple[float, str]] = {}
    for (what, tile), call in calls.items():
        why = reasons[what, tile]
        us = ""
        if not why:
            try:
                us = f"{seconds(call, device) * 1e6:.1f}"
                best[what] = min(best.get(what, (1e9, "")), (float(us), tile))
            except Exception as error:
                why = one_line(error)
        if why:
            print(f"  {what}, tile {tile}: {why}", flush=True)
        rows.add([B, name, what, tile, us, why])
    print("  " + "; ".join(f"{what} {us:.1f} us ({tile})" for what, (us, tile) in best.items()), flush=True)


def time_ways(B: int, name: str, plain: Any, inputs: list[Any], rest: Any, device: torch.device, rows: Rows) -> None:
    ways = convolution_ways(plain, *inputs, *rest)
    leaves = [t for t in inputs if t is not None and t.requires_grad]

    def run(way: Callable[..., torch.Tensor]) -> None:
        y = way(*inputs)
        torch.autograd.grad(y, leaves, torch.ones_like(y))

    best: dict[str, float] = {}
    for _ in range(ROUNDS):  # in turn: what disturbs one round disturbs all ways
        for way in list(ways):
            try:
                best[way] = min(best.get(way, float("inf")), seconds(partial(run, ways[way]), device))
            except Exception as error:
                print(f"  {way}: {one_line(error)}", flush=True)
                del ways[way]
    others = [s for way, s in best.items() if way != "triton"]
    ratio = best["triton"] / min(others) if others and "triton" in best else float("nan")
    for way, s in sorted(best.items(), key=lambda item: item[1]):
        rows.add([B, name, way, f"{s * 1e3:.4f}", f"{ratio:.3f}" if way == "triton" else ""])
    told = ", ".join(f"{way} {s * 1e3:.3f}" for way, s in sorted(best.items(), key=lambda item: item[1]))
    print(f"  ms: {told}; triton / best other {ratio:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=f"words of {', '.join(SHAPES)} (default: all)")
    parser.add_argument("--B", type=int, nargs="+", default=[8, 32], help="numbers of models (default 8 32)")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--no-tf32", action="store_true", help="float32 in full")
    parser.add_argument("--seconds", type=float, default=55, help="begin no shape after this time (default 55)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the two tables")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise InvalidArgument("convolution_ways measures on a GPU, and torch finds none")
    begin = time.monotonic()
    device = torch.device("cuda", torch.cuda.current_device())
    torch.backends.cudnn.allow_tf32 = not options.no_tf32
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    ways = Rows(options.out, "convolution-ways.csv", ["B", "shape", "way", "ms", "of the best other"])
    tiles = Rows(options.out, "triton-tiles.csv", ["B", "shape", "pass", "tile", "us", "why not"])
    print(f"{torch.cuda.get_device_name(device)}, {options.dtype}, {in_triton.precision()}", flush=True)
    for name in SHAPES:  # whose kernels are compiled once for all B
        for B in options.B:
            if options.shapes and not any(word in name for word in options.shapes):
                continue
            if time.monotonic() - begin > options.seconds:
                print(f"B={B} {name}: left out, the time was up", flush=True)
                continue
            print(f"B={B} {name} ({time.monotonic() - begin:.0f} s)", flush=True)
            try:
                plain, inputs, rest = tensors(name, B, getattr(torch, options.dtype), device)
                time_tiles(B, name, tile_calls(name, inputs, plain, rest), device, tiles)
                time_ways(B, name, plain, inputs, rest, device, ways)
            except Exception as error:  # the other shapes are worth their time
                print(f"  {one_line(error)}", flush=True)
            torch.cuda.empty_cache()  # graphs' pools are no others' before


if __name__ == "__main__":
    command.run(main, "rows")
