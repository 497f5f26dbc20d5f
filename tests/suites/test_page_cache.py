# SPDX-License-Identifier: MIT
from pathlib import Path

import pytest

from dnnsuite.suites._page_cache import before_run, drop, files_of, resident_share, unused_dataroot
from dnnsuite.suites.entry import SuiteEntry


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SuiteEntry:
    """Of a job with a data set of two files."""
    monkeypatch.setenv("DNNSUITE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "data/ml-20m"
    folder.mkdir(parents=True)
    for name in ("ratings.csv", "movies.csv"):
        (folder / name).write_bytes(bytes(100_000))
    (tmp_path / "data/other.bin").write_bytes(bytes(10))
    return SuiteEntry(1, "recom", "recom", "recom", "", "student", dataroot=str(tmp_path / "data"))


def test_files_of_a_job_are_those_of_its_data_set(entry: SuiteEntry) -> None:
    assert sorted(path.name for path in files_of(entry)) == ["movies.csv", "ratings.csv"]
    assert list(files_of(SuiteEntry(1, "vae", "vae", "vae", "", "student", dataroot=entry.dataroot))) == []


def test_files_are_dropped_and_it_is_recorded(entry: SuiteEntry) -> None:
    for path in files_of(entry):
        path.read_bytes()
    state, details = before_run(entry, cold=False)
    assert (state, details["files"], details["resident_before"]) == ("as found", 2, 1.0)
    state, details = before_run(entry, cold=True)
    assert (state, details["bytes"]) == ("cold", 200_000)
    assert details["resident_before"] == 1.0
    assert details["resident_after"] <= 1.0  # a file system in memory keeps them


def test_a_dataroot_that_has_nothing_for_a_job_is_told(entry: SuiteEntry) -> None:
    assert unused_dataroot(entry) == ""
    other = SuiteEntry(1, "vae", "vae", "vae", "", "student", dataroot=entry.dataroot)
    assert unused_dataroot(other) == "no mnist in the dataroot: other data"
    assert unused_dataroot(SuiteEntry(1, "toy_reg", "toy_reg", "toy_reg", "", "student", dataroot="x")) == ""
    assert unused_dataroot(SuiteEntry(1, "vae", "vae", "vae", "", "student")) == ""


def test_what_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    assert drop([tmp_path / "absent"]) == 0
    assert resident_share([]) is None
    (tmp_path / "empty").touch()
    assert resident_share([tmp_path / "empty", tmp_path / "absent"]) is None
