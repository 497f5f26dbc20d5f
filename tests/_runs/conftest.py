# SPDX-License-Identifier: MIT
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dnnsuite._runs.spec import WorkerSpec

HERE = str(Path(__file__).parent)


@pytest.fixture
def spec_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., WorkerSpec]:
    """The spec of a task in worker_tasks.py, in a folder of its own."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))

    def make(task: str, folder: str = "0", memory_limit_bytes: int | None = 1 << 30, **details: Any) -> WorkerSpec:
        (tmp_path / folder).mkdir()
        return WorkerSpec(
            f"worker_tasks:{task}", str(tmp_path / folder), "toy", {}, details, memory_limit_bytes=memory_limit_bytes
        )

    return make
