# SPDX-License-Identifier: MIT
"""The command `python benchmarks/sweep.py`, which is in `arrays/sweep.py`; with `rivals`, `arrays/sweep_rivals.py`."""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    rivals = sys.argv[1:2] == ["rivals"]
    if rivals:
        del sys.argv[1]
    script = Path(__file__).parent / "arrays" / ("sweep_rivals.py" if rivals else "sweep.py")
    sys.path[0] = str(script.parent)  # as Python has it when the script itself is run
    runpy.run_path(str(script), run_name="__main__")
