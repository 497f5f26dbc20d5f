# SPDX-License-Identifier: MIT
import subprocess
import sys
from pathlib import Path

import pytest

from dnnsuite._files import OutputError
from dnnsuite._runs.folder import opened, stamp
from dnnsuite.errors import Error, InvalidArgument

FILE = "state.json"


def test_a_run_is_whole_or_absent(tmp_path: Path) -> None:
    with opened(tmp_path / "out", FILE, resume=False) as record:
        record.state["x"] = 1
        record.save()
        whole, half = (record.begin_run(name) for name in ("a-B1-fp32-r0", "b-B1-fp32-r0"))
        assert record.finished() == []
        assert record.finish_run(whole, {"status": "ok"}) == record.runs / "a-B1-fp32-r0"
        assert record.finished() == [{"status": "ok"}]
    assert half.exists()
    with opened(tmp_path / "out", FILE, resume=True) as record:
        assert record.state == {"x": 1}
        assert [path.name for path in record.runs.iterdir()] == ["a-B1-fp32-r0"]


def test_two_at_once(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from dnnsuite.errors import Error
from dnnsuite._runs.folder import opened
try:
    with opened(Path({str(tmp_path)!r}), {FILE!r}, resume=True):
        print("in")
except Error as error:
    print(error)
"""
    with opened(tmp_path, FILE, resume=False) as record:
        record.save()
        argv = [sys.executable, "-c", code]
        during = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    after = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert "another process is at work in" in during
    assert "choose another --out" in during
    assert after == "in\n"


def test_refusals(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidArgument, match=r"is not empty \(file\)"), opened(tmp_path, FILE, resume=False):
        pass
    with (
        pytest.raises(InvalidArgument, match=rf"holds no {FILE}"),
        opened(tmp_path / "new", FILE, resume=True),
    ):
        pass
    with (
        pytest.raises(OutputError, match="Not a directory"),
        opened(tmp_path / "file" / "out", FILE, resume=False),
    ):
        pass
    (tmp_path / FILE).write_text("{")
    with pytest.raises(Error, match=FILE), opened(tmp_path, FILE, resume=True):
        pass


def test_a_directory_that_got_nothing_is_not_left(tmp_path: Path) -> None:
    with opened(tmp_path / "out", FILE, resume=False):
        pass
    assert list(tmp_path.iterdir()) == []


def test_stamps_sort_as_time() -> None:
    assert stamp(0.0) < stamp(1e9) < stamp(1e9 + 0.001) < stamp()
    assert len(stamp()) == len("20261121-051612-250")
