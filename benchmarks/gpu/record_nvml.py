# SPDX-License-Identifier: MIT
"""Records what NVML and GPM say of a GPU at rest and at work, for the tests that replay recordings without one.

    python benchmarks/gpu/record_nvml.py [FILE]

The file belongs in tests/profiler/nvml/recorded/, named after the GPU; it is some 100 kB.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from dnnsuite import results
from dnnsuite.profiler.nvml import NvmlInstrument

FOLDER = Path(__file__).parents[2] / "tests/profiler/nvml/recorded"
REST_S, WORK_S = 2.0, 5.0


def work(seconds: float) -> None:
    """Matrix products in bf16."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(20):
            a @ a
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, help="default: the GPU's name, in the tests' folder")
    file = parser.parse_args().file
    if not torch.cuda.is_available():
        raise SystemExit("no GPU: there is nothing to record")
    if file is None:
        FOLDER.mkdir(exist_ok=True)
        file = FOLDER / f"{torch.cuda.get_device_name().replace(' ', '-')}.csv"
    instrument = NvmlInstrument(interval_s=0.1)
    instrument.open()
    try:
        instrument.start()
        time.sleep(REST_S)
        work(WORK_S)
        time.sleep(REST_S)
        instrument.stop()
        table = instrument.tables()["samples"]
        results.save_csv(table, file)
        print(table.groupby(["device", "name"], observed=True)["value"].describe().to_string())
        print("\n".join([f"wrote {file}", *instrument.notes()]))
    finally:
        instrument.close()


if __name__ == "__main__":
    main()
