# SPDX-License-Identifier: MIT
"""Cost of the suite's runner: wall time in which no copy sets up or is timed, as a share of the whole.

python benchmarks/instruments/bench_suite.py        # runs some jobs as `dnnsuite run baselines` does
python benchmarks/instruments/bench_suite.py OUT    # looks at a run that was made already
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from dnnsuite._files import read_json
from dnnsuite.suites import SUITE_FILE, run_suite

JOBS = ["toy_reg", "toy_lstm", "vae"]


def busy_s(root: Path) -> dict[tuple[str, int], float]:
    """Seconds of each job of each run in which a copy of it was set up (all begin after the last) or timed."""
    setups, windows = defaultdict(list), defaultdict(list)
    for path in sorted(root.glob("runs/[!.]*/run.json")):
        run = read_json(path)
        if run["status"] == "ok":
            group = (run["key"], run["repeat_index"])
            setups[group].append(run["setup_s"])
            windows[group].append(run["window_s"])
    return {group: max(setups[group]) + max(windows[group]) for group in setups}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", type=Path, help="a directory of `dnnsuite run`")
    parser.add_argument("--jobs", default=",".join(JOBS), help="what to run when there is none")
    parser.add_argument("--preset")
    arguments = parser.parse_args()
    if arguments.out:
        report(arguments.out, sum(run["seconds"] for run in read_json(arguments.out / SUITE_FILE)["repeats"]))
        return
    with tempfile.TemporaryDirectory() as folder:
        began_s = time.monotonic()
        asked = {"names": arguments.jobs.split(","), "preset": arguments.preset, "device": "cpu"}
        finished = run_suite("baselines", asked, Path(folder) / "out")
        report(finished.root, time.monotonic() - began_s)


def report(root: Path, wall_s: float) -> None:
    """Print the share of each job, and of the whole."""
    busy = busy_s(root)
    for (key, repeat), seconds in busy.items():
        print(f"{key:<26} run {repeat}  set up and timed {seconds:8.2f} s")
    outside_s = wall_s - sum(busy.values())
    print(
        f"whole {wall_s:.2f} s, outside {outside_s:.2f} s: runner overhead {100 * outside_s / wall_s:.2f} %"
    )


if __name__ == "__main__":
    main()
