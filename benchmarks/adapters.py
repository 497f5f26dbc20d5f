# SPDX-License-Identifier: MIT
"""The command `python benchmarks/adapters.py`, which is in `arrays/adapters.py`."""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    script = Path(__file__).parent / "arrays/adapters.py"
    sys.path[0] = str(script.parent)  # as Python has it when the script itself is run
    runpy.run_path(str(script), run_name="__main__")
