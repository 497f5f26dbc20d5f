# SPDX-License-Identifier: MIT
"""Record what only a GPU can give, so that tests replay it where there is none.

    python benchmarks/gpu/record_fixtures.py                    # all parts, into tests/fixtures
    python benchmarks/gpu/record_fixtures.py --only counters --out /tmp/fixtures

Files are called PART-cuptiVERSION-CHIP-NAME: images as CUPTI filled them, sealed, and beside each a JSON with what was
asked, what this machine made of it, and the machine. A part that cannot be had here says why, and the others go on.

To add a part: a function from an open `Recording` to nothing, in `PARTS`; and the test that replays its files.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dnnsuite._files import replacing, write_json
from dnnsuite.errors import Error, Unavailable
from dnnsuite.profiler.counters import PRESETS, catalogue, plan, select
from dnnsuite.profiler.counters.catalogue import CUPTI, Backend
from dnnsuite.profiler.counters.roles import SAMPLED, SHARED

FIXTURES = Path(__file__).parents[2] / "tests/fixtures"
STEPS = 4


@dataclass
class Recording:
    """Folder of the files, their GPU, and the measured work: one call is one step, finished on return."""

    folder: Path
    backend: Backend
    device: Any
    work: Callable[[], None]

    def path(self, part: str, name: str) -> Path:
        return self.folder / f"{part}-cupti{catalogue.version()}-{self.device.chip}-{name}"

    def keep(self, part: str, name: str, image: bytes, about: dict[str, Any]) -> None:
        """An image, and what is known of it."""
        path = self.path(part, name)
        with replacing(path.with_name(path.name + ".image")) as temporary:
            temporary.write_bytes(image)
        write_json(path.with_name(path.name + ".json"), {"chip": self.device.chip, **about})
        print(path.name)


def counters(recording: Recording) -> None:
    """Counter-data images of every preset over steps, with the values that this machine read from them."""
    chip = recording.device.chip
    for preset in PRESETS:
        if preset in SAMPLED:
            continue
        chosen = select(preset, chip)
        shared = [metric for metric, role in chosen.roles.items() if role in SHARED]
        made = plan(chosen.metrics, chip, in_every_group=shared)
        groups = [group.metrics for group in made.groups]
        for segment in _segments(recording, groups, kernels=False, steps=made.steps * STEPS):
            _keep_segment(recording, "counters", preset, segment, groups, made.to_dict())
    kernels = [select("cores", chip).metrics]
    for segment in _segments(recording, kernels, kernels=True, steps=1):
        _keep_segment(recording, "kernels", "cores", segment, kernels, {})


def _segments(recording: Recording, groups: list[Any], kernels: bool, steps: int) -> list[dict[str, Any]]:
    session = recording.backend.ranges(recording.device, groups, kernels, 256 if kernels else 8)
    try:
        session.start()
        for _ in range(steps):
            recording.work()
            session.step()
        session.stop()
        found: list[dict[str, Any]] = session.take()
    finally:
        session.close()
    latest = {segment["group"]: segment for segment in found}  # one of each group will do
    return list(latest.values())


def _keep_segment(
    recording: Recording, part: str, preset: str, segment: dict[str, Any], groups: list[Any], made: dict[str, Any]
) -> None:
    image, group = segment.pop("image"), segment["group"]
    found = recording.backend.evaluate(recording.device.chip, image, groups[group])
    about = {"preset": preset, "metrics": list(groups[group]), "plan": made, "segment": segment, "found": found}
    recording.keep(part, f"{preset}-{group}", image, about)


def sampling(recording: Recording) -> None:
    """One image of PM samples, with the samples that were read from it while its sampler was there."""
    (preset,) = SAMPLED
    chosen = select(preset, recording.device.chip)
    cycles = recording.device.chip.startswith(("TU", "GA100"))
    session = recording.backend.sampled(
        recording.device,
        chosen.metrics,
        interval=100_000,
        interval_in_cycles=cycles,
        keep_latest=not recording.device.chip.startswith("TU"),
    )
    try:
        session.start()
        recording.work()
        session.stop()
        windows = session.take()
    finally:
        session.close()
    for window in windows:
        image = window.pop("image")
        recording.keep("sampling", preset, image, {"metrics": list(chosen.metrics), "found": window})


PARTS: dict[str, Callable[[Recording], None]] = {"counters": counters, "sampling": sampling}


def gpu_work() -> Callable[[], None]:
    """Products in bf16 and fp32, an element-wise pass and transcendental functions: every kind of core has some."""
    import torch

    half = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    single = torch.randn(2048, 2048, device="cuda")

    def work() -> None:
        (half @ half).relu()
        (single @ single).exp().sin().sum()
        torch.cuda.synchronize()

    work()  # libraries are loaded and memory is allocated before anything is counted
    return work


def record(folder: Path, only: list[str], backend: Backend, work: Callable[[], Callable[[], None]]) -> int:
    """Record the parts; the exit status says whether all could be."""
    try:
        device = backend.device(0)
        recording = Recording(folder, backend, device, work())
    except Unavailable as missing:
        print(f"nothing recorded: {missing}", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in only:
        try:
            PARTS[name](recording)
        except Error as error:
            failed += 1
            print(f"{name}: {error}", file=sys.stderr)
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=FIXTURES)
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, of {', '.join(PARTS)}")
    arguments = parser.parse_args()
    only = arguments.only.split(",")
    unknown = [name for name in only if name not in PARTS]
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return record(arguments.out, only, CUPTI, gpu_work)


if __name__ == "__main__":
    sys.exit(main())
