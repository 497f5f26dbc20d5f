# SPDX-License-Identifier: MIT
import subprocess
import sys
from pathlib import Path

import pytest

from dnnsuite._runs.plugins import import_plugins
from dnnsuite.errors import InvalidArgument


def test_a_plugin_in_a_folder_registers_its_workload(tmp_path: Path) -> None:
    (tmp_path / "my_plugin.py").write_text(
        "from dnnsuite import jobs\n\n\n@jobs.register('mine')\nclass Mine(jobs.Job):\n    pass\n"
    )
    program = f"""
from dnnsuite import jobs
from dnnsuite._runs.plugins import import_plugins
import_plugins(["my_plugin"], [{str(tmp_path)!r}])
print(jobs.get("mine").__name__)
"""
    # In a process of its own: a workload stays registered.
    assert (
        subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE).stdout
        == b"Mine\n"
    )


def test_a_plugin_that_is_not_there() -> None:
    with pytest.raises(InvalidArgument, match="--plugin nowhere_to_be_found"):
        import_plugins(["nowhere_to_be_found"])
