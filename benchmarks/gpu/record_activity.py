# SPDX-License-Identifier: MIT
"""Records some training steps of a small model on a GPU, for the tests that replay recordings without one.

    python benchmarks/gpu/record_activity.py [FILE]

The file belongs in tests/profiler/activity/recorded/, named after the GPU; it is some 100 kB.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch

from dnnsuite.profiler.activity import ActivityInstrument, analyse

FOLDER = Path(__file__).parents[2] / "tests/profiler/activity/recorded"


def graph_of(gradients: Callable[[], None], model: torch.nn.Module) -> torch.cuda.CUDAGraph:
    """Capture forward and backward on a stream of its own, after two runs in which libraries allocate."""
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            model.zero_grad()
            gradients()
    torch.cuda.current_stream().wait_stream(side)
    model.zero_grad()
    with torch.cuda.graph(graph):
        gradients()
    return graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, help="default: the GPU's name, in the tests' folder")
    file = parser.parse_args().file
    if not torch.cuda.is_available():
        raise SystemExit("no GPU: there is nothing to record")
    if file is None:
        FOLDER.mkdir(exist_ok=True)
        file = FOLDER / f"{torch.cuda.get_device_name().replace(' ', '-')}-{torch.version.cuda}.npz"
    layers = [torch.nn.Conv2d(3, 32, 3), torch.nn.BatchNorm2d(32), torch.nn.ReLU(), torch.nn.Flatten()]
    model = torch.nn.Sequential(*layers, torch.nn.LazyLinear(10)).cuda()
    x, y = torch.randn(64, 3, 32, 32, device="cuda"), torch.randint(10, (64,), device="cuda")
    model(x)
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    def gradients() -> None:
        torch.nn.functional.cross_entropy(model(x), y).backward()

    instrument = ActivityInstrument()
    instrument.open()
    try:
        instrument.start()  # the first window loads modules, and is recorded as well
        for _ in range(5):
            step()
        instrument.stop()
        graph = graph_of(gradients, model)
        instrument.start()  # CUPTI has had faults with graphs in windows after the first
        for _ in range(3):
            step()
        for _ in range(3):
            graph.replay()
            optimizer.step()
        torch.cuda.synchronize()
        instrument.stop()
    finally:
        instrument.close()
    instrument.save(file)
    print(analyse(instrument.tables(), instrument.windows)["gpu"].T.to_string(header=False))
    print("\n".join([f"wrote {file}", *instrument.notes()]))


if __name__ == "__main__":
    main()
