# SPDX-License-Identifier: MIT
import subprocess
import sys
from pathlib import Path

import pytest

from dnnsuite._runs.spec import import_plugins
from dnnsuite.errors import InvalidArgument


def test_a_plugin_in_a_folder_registers_its_workload(tmp_path: Path) -> None:
    (tmp_path / "my_plugin.py").write_text(
        "from dnnsuite import jobs\n\n\n@jobs.register('mine')\nclass Mine(jobs.Job):\n    pass\n"
    )
    program = f"""
from dnnsuite import jobs
from dnnsuite._runs.spec import import_plugins
import_plugins(["my_plugin"], [{str(tmp_path)!r}])
print(jobs.get("mine").__name__)
"""
    # In a process of its own: a workload stays registered.
    assert subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE).stdout == b"Mine\n"


def test_a_plugin_that_is_not_there() -> None:
    with pytest.raises(InvalidArgument, match="--plugin nowhere_to_be_found"):
        import_plugins(["nowhere_to_be_found"])


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero .bad_plugin.py, line 1"),
        ("def", "SyntaxError"),
        ("exit(3)", "SystemExit: 3"),
    ],
)
def test_a_plugin_whose_code_fails(code, message, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad_plugin.py").write_text(code + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidArgument, match=f"--plugin bad_plugin: {message}"):
        import_plugins(["bad_plugin"])


def test_a_file_in_place_of_a_module() -> None:
    with pytest.raises(InvalidArgument, match="--plugin spirals, with PYTHONPATH=examples"):
        import_plugins(["examples/spirals.py"])
