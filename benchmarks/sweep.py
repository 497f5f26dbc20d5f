# SPDX-License-Identifier: MIT
"""The command `python benchmarks/sweep.py`, which is in `arrays/sweep.py`; with `rivals`, `shared` or `records`, in
`arrays/sweep_rivals.py`, `arrays/sweep_shared.py` or `arrays/sweep_records.py`."""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    other = sys.argv.pop(1) if sys.argv[1:2] in (["rivals"], ["shared"], ["records"]) else ""
    script = Path(__file__).parent / "arrays" / (f"sweep_{other}.py" if other else "sweep.py")
    sys.path[0] = str(script.parent)  # as Python has it when the script itself is run
    runpy.run_path(str(script), run_name="__main__")
