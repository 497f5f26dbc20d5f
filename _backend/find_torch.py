# SPDX-License-Identifier: MIT
"""Where is the torch to build against? Asked by the build backend and, as a script, by CMake.

Nothing here imports torch: the package folder with its headers and libtorch_cpu.so is all a build needs.
"""

import os
import pathlib
import re
import subprocess
import sys
import sysconfig

MINIMUM = (2, 10)  # the stable ABI this project targets
_PROBE = "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"


def version(folder: pathlib.Path) -> tuple[int, int] | None:
    """Major and minor version of the torch in `folder`, None where there is none."""
    try:
        text = (folder / "version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"__version__\s*=\s*['\"](\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def usable(folder: pathlib.Path) -> bool:
    """Whether `folder` is a torch package that has the stable ABI's headers at the version asked for."""
    found = version(folder)
    return (
        found is not None and found >= MINIMUM and (folder / "include/torch/csrc/stable/library.h").is_file()
    )


def _candidates():
    # Inside pip's isolated build environment sysconfig still names the environment that is installed into.
    for key in ("platlib", "purelib"):
        yield pathlib.Path(sysconfig.get_path(key)) / "torch"
    # -I looks past the isolation at everything the target sees; without it, at the build environment itself.
    for flags in (["-I"], []):
        answer = subprocess.run(
            [sys.executable, *flags, "-c", _PROBE], capture_output=True, text=True, check=False
        )
        if answer.returncode == 0 and answer.stdout.strip():
            yield pathlib.Path(answer.stdout.strip())


def find() -> pathlib.Path | None:
    """The package folder of a usable torch; DNNSUITE_TORCH_DIR decides alone when it is set."""
    named = os.environ.get("DNNSUITE_TORCH_DIR")
    if named:
        folder = pathlib.Path(named)
        if not usable(folder):
            raise SystemExit(f"DNNSUITE_TORCH_DIR={named} is not the folder of a torch >= 2.10 package")
        return folder
    return next((folder for folder in _candidates() if usable(folder)), None)


if __name__ == "__main__":
    print(find() or "")
