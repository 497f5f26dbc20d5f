# SPDX-License-Identifier: MIT
import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from dnnsuite._files import OutputError
from dnnsuite._runs.spec import WorkerSpec


def test_what_is_written_is_read(spec_of: Callable[..., WorkerSpec]) -> None:
    spec = replace(spec_of("fine", number=3), plugins=("a",), sys_path=("/b",), processes=2)
    assert WorkerSpec.read(spec.write()) == replace(spec, parent_pid=os.getpid())


def test_a_folder_that_is_not_there(spec_of: Callable[..., WorkerSpec]) -> None:
    with pytest.raises(OutputError, match="cannot write"):
        replace(spec_of("fine"), directory="/nowhere/at/all").write()
