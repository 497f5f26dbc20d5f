# SPDX-License-Identifier: MIT
"""Where vendors' libraries are looked for."""

import pytest

from dnnsuite import _C, _vendor
from dnnsuite.errors import Unavailable


def test_folders_of_wheels_come_before_the_toolkit(tmp_path, monkeypatch):
    for folder in (
        "wheels/nvidia/cu13/lib",
        "wheels/nvidia/cublas/lib",
        "toolkit/lib64",
        "toolkit/extras/CUPTI/lib64",
    ):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path / "wheels")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    found = [folder for folder in _vendor.folders() if folder.is_relative_to(tmp_path)]
    assert [str(folder.relative_to(tmp_path)) for folder in found] == [
        "wheels/nvidia/cu13/lib", "wheels/nvidia/cublas/lib", "toolkit/lib64", "toolkit/extras/CUPTI/lib64",
    ]  # fmt: skip


def test_a_missing_library_says_where_and_what_helps(tmp_path):
    _C.add_library_folder(str(tmp_path))
    with pytest.raises(Unavailable) as caught:
        _C.library_path("libnone_such.so.1", "get one")
    assert str(tmp_path) in caught.value.looked_in
    assert caught.value.remedy == "get one"


def test_a_damaged_library_is_told_from_a_missing_one(tmp_path):
    (tmp_path / "libdamaged.so.1").write_text("not a library")
    _C.add_library_folder(str(tmp_path))
    with pytest.raises(Unavailable, match=r"invalid ELF header|file too short"):
        _C.library_path("libdamaged.so.1")
    assert _C.library_path("libc.so.6").endswith("libc.so.6")
