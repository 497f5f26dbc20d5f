# SPDX-License-Identifier: MIT
"""Find the torch to build against, and the torch of the environment that is installed into.

Used by the build backend and, as a script, by CMake. Nothing here imports torch: the package folder with its headers
and libtorch_cpu.so is all a build needs.
"""

import os
import pathlib
import re
import subprocess
import sys
import sysconfig

MINIMUM = (2, 10)  # the stable ABI this project targets
_PROBE = "import importlib.util as u; s = u.find_spec({!r}); print(s.submodule_search_locations[0] if s else '')"


def version_text(folder: pathlib.Path) -> str | None:
    """The version of the torch in `folder` as it is written, such as 2.13.0+cpu; None where there is none."""
    try:
        text = (folder / "version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"__version__\s*=\s*['\"]([^'\"]+)['\"]", text)
    return found[1] if found else None


def version(folder: pathlib.Path) -> tuple[int, int] | None:
    """Major and minor version of the torch in `folder`, None where there is none."""
    found = re.match(r"(\d+)\.(\d+)", version_text(folder) or "")
    return (int(found[1]), int(found[2])) if found else None


def new_enough(folder: pathlib.Path) -> bool:
    """True if `folder` is a torch package that the operators run on."""
    found = version(folder)
    return found is not None and found >= MINIMUM


def usable(folder: pathlib.Path) -> bool:
    """True if `folder` is such a package with the stable ABI's headers, as a build needs them."""
    return new_enough(folder) and (folder / "include/torch/csrc/stable/library.h").is_file()


def _probe(package: str, *flags: str) -> list[pathlib.Path]:
    command = [sys.executable, *flags, "-c", _PROBE.format(package)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    found = answer.stdout.strip() if answer.returncode == 0 else ""
    return [pathlib.Path(found)] if found else []


def _in_target(package: str) -> list[pathlib.Path]:
    """Folders of `package` in the environment that is installed into, also from within pip's isolated build."""
    # There sysconfig still names that environment, and -I looks past the isolation at everything that it sees.
    folders = [pathlib.Path(sysconfig.get_path(key)) / package for key in ("platlib", "purelib")]
    return [folder for folder in folders if folder.is_dir()] + _probe(package, "-I")


def installed() -> pathlib.Path | None:
    """The package folder of a torch new enough in the environment that is installed into."""
    return next(filter(new_enough, _in_target("torch")), None)


def torchvision_installed() -> bool:
    """True if the environment that is installed into has a torchvision."""
    return bool(_in_target("torchvision"))


def find() -> pathlib.Path | None:
    """The package folder of a usable torch to build against; DNNSUITE_TORCH_DIR decides alone when it is set."""
    named = os.environ.get("DNNSUITE_TORCH_DIR")
    if named:
        folder = pathlib.Path(named)
        if not usable(folder):
            raise SystemExit(f"DNNSUITE_TORCH_DIR={named} is not the folder of a torch >= 2.10 package")
        return folder
    return next(filter(usable, [*_in_target("torch"), *_probe("torch")]), None)


if __name__ == "__main__":
    print(find() or "")
