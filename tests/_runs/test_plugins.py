# SPDX-License-Identifier: MIT
import sys
from pathlib import Path

import pytest

from dnnsuite import jobs
from dnnsuite._runs.plugins import import_plugins
from dnnsuite.errors import InvalidArgument
from dnnsuite.jobs import _workload


def test_a_plugin_in_a_folder_registers_its_workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(_workload, "_REGISTRY", dict(_workload._REGISTRY))
    (tmp_path / "my_plugin.py").write_text(
        "from dnnsuite import jobs\n\n\n@jobs.register('mine')\nclass Mine(jobs.Job):\n    pass\n"
    )
    import_plugins(["my_plugin"], [str(tmp_path)])
    assert jobs.get("mine").__name__ == "Mine"


def test_a_plugin_that_is_not_there() -> None:
    with pytest.raises(InvalidArgument, match="--plugin nowhere_to_be_found"):
        import_plugins(["nowhere_to_be_found"])
