# SPDX-License-Identifier: MIT
"""A low-rank update of adapters on a GPU, forward and backward as a CUDA graph, against its compositions.

    python benchmarks/gpu/low_rank.py --out DIR              # 8 models, four shapes
    python benchmarks/gpu/low_rank.py --B 32 --rank 64

`batched` is what PEFT computes, for all models at once: x in float32, two batched products, and the sum rounded to the
base's type. `grouped_mm` is torch's product of groups, with adapters of 16 bits. The ways take turns; a ratio is the
median over the rounds of the other's time by the kernel's. `--out DIR` has low-rank.csv.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import command

from dnnsuite import ops
from dnnsuite._files import replacing
from dnnsuite.errors import Unavailable

ROUNDS, LAUNCHES = 7, 20
SHAPES = {"1 x 256, 2048 to 2048": (256, 2048, 2048), "1 x 256, 2048 to 7168": (256, 2048, 7168),
          "4 x 512, 2048 to 2048": (2048, 2048, 2048), "64 tokens, 768 to 768": (64, 768, 768)}  # fmt: skip

Way = Callable[..., torch.Tensor]


def batched(
    y: torch.Tensor, x: torch.Tensor, down: torch.Tensor, up: torch.Tensor, scale: torch.Tensor
) -> torch.Tensor:
    hidden = torch.bmm(x.to(down.dtype), down.transpose(1, 2)) * scale.view(-1, 1, 1).to(down.dtype)
    return (y + torch.bmm(hidden, up.transpose(1, 2))).to(y.dtype)


def grouped(
    y: torch.Tensor, x: torch.Tensor, down: torch.Tensor, up: torch.Tensor, scale: torch.Tensor
) -> torch.Tensor:
    B, N, _ = x.shape
    ends = torch.arange(N, B * N + 1, N, device=x.device, dtype=torch.int32)
    product = torch.nn.functional.grouped_mm
    hidden = product(x.flatten(0, 1), down.transpose(1, 2), offs=ends)
    hidden = (hidden.view(B, N, -1) * scale.view(-1, 1, 1).to(x.dtype)).flatten(0, 1)
    return y + product(hidden, up.transpose(1, 2), offs=ends).view(y.shape)


def launched(way: Way, tensors: list[torch.Tensor], scale: torch.Tensor, seed: torch.Tensor) -> torch.cuda.CUDAGraph:
    """Capture the update and its gradients."""

    def step() -> None:
        torch.autograd.grad(way(*tensors, scale), tensors, seed)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    return graph


def microseconds(graph: torch.cuda.CUDAGraph) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    begin.record()
    for _ in range(LAUNCHES):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1000 / LAUNCHES


def compared(shape: tuple[int, int, int], B: int, rank: int, adapters: torch.dtype) -> dict[str, list[float]]:
    """Return the microseconds of each way, a value per round."""
    rows, inputs, outputs = shape
    sizes = (B, rows, outputs), (B, rows, inputs), (B, rank, inputs), (B, outputs, rank)
    kinds = torch.bfloat16, torch.bfloat16, adapters, adapters
    tensors = [torch.randn(s, device="cuda", dtype=k).requires_grad_() for s, k in zip(sizes, kinds, strict=True)]
    scale, seed = torch.full((B,), 2.0, device="cuda"), torch.randn_like(tensors[0])
    ways: dict[str, Way] = {"kernel": ops.low_rank_update, "batched": batched}
    if adapters == torch.bfloat16 and hasattr(torch.nn.functional, "grouped_mm"):
        ways["grouped_mm"] = grouped
    graphs = {name: launched(way, tensors, scale, seed) for name, way in ways.items()}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, graph in graphs.items():
            times[name].append(microseconds(graph))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--B", type=int, default=8, help="models")
    parser.add_argument("--rank", type=int, default=16, help="of the adapters")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write low-rank.csv there")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise Unavailable("this compares kernels of a GPU, and torch finds none")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {options.B} models of rank {options.rank}")
    lines = []
    for adapters in (torch.float32, torch.bfloat16):
        for name, shape in SHAPES.items():
            times = compared(shape, options.B, options.rank, adapters)
            own = times.pop("kernel")
            said = [f"kernel {statistics.median(own):.1f} us"]
            for way, values in times.items():
                ratio = statistics.median(other / mine for other, mine in zip(values, own, strict=True))
                said.append(f"{way} {ratio:.2f} times")
                lines.append([name, str(adapters)[6:], way, round(statistics.median(own), 1), round(ratio, 3)])
            print(f"{name}, adapters in {str(adapters)[6:]}: {', '.join(said)}", flush=True)
    if options.out:
        path = options.out / "low-rank.csv"
        with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([["shape", "adapters", "way", "kernel_us", "times_as_long"], *lines])


if __name__ == "__main__":
    command.run(main, "shapes")
