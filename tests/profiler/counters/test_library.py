# SPDX-License-Identifier: MIT
"""Choice of a CUPTI. Doubles answer, do not answer, or end the process; none is called CUPTI."""

import shutil
import subprocess
from pathlib import Path

import pytest

from cupti_plans import needs_cupti
from dnnsuite.errors import Unavailable
from dnnsuite.profiler.counters import library

COMPILER = shutil.which("cc") or shutil.which("gcc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler: apt-get install gcc")
ANSWERS = {"good": "return 0;", "mute": "return 999;", "deadly": "return *(volatile int*)0;"}


@pytest.fixture
def libraries(tmp_path: Path) -> dict[str, Path]:
    for name, body in ANSWERS.items():
        source = f"int cuptiGetVersion(unsigned* version) {{ *version = 1; {body} }}"
        target = tmp_path / f"{name}.so"
        command = [str(COMPILER), "-shared", "-fPIC", "-O0", "-x", "c", "-", "-o", str(target)]
        subprocess.run(command, input=source, text=True, check=True)
    return {name: tmp_path / f"{name}.so" for name in ANSWERS}


@needs_compiler
def test_one_that_ends_the_process_is_not_asked_in_this_one(libraries: dict[str, Path]) -> None:
    assert {name: library.version_of(path) for name, path in libraries.items()} == {
        "good": 1,
        "mute": None,
        "deadly": None,
    }
    assert library.version_of("/no/such/library") is None


@needs_compiler
def test_without_a_driver_the_first_that_answers_is_opened(
    libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def load(name: str) -> None:
        if name == "libcuda.so.1":
            raise OSError("no driver")
        opened.append(name)

    monkeypatch.setattr(library.ctypes, "CDLL", load)
    order = [libraries[name] for name in ("deadly", "mute", "good")]
    monkeypatch.setattr(library, "candidates", lambda: order)
    library.ready.__wrapped__()
    assert opened == [str(order[-1])]
    monkeypatch.setattr(library, "candidates", lambda: order[:2])
    with pytest.raises(Unavailable, match=r"dnnsuite\[counters\]") as caught:
        library.ready.__wrapped__()
    assert str(order[1]) in caught.value.looked_in


def test_with_a_driver_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library.ctypes, "CDLL", lambda name: None)
    monkeypatch.setattr(library, "candidates", lambda: pytest.fail("tried"))
    library.ready.__wrapped__()


@needs_cupti
def test_a_copy_that_the_process_has_is_the_only_candidate() -> None:
    library.ready()
    loaded = library.candidates()
    assert len(loaded) == 1
    assert library.version_of(loaded[0]) or library._has_driver()
