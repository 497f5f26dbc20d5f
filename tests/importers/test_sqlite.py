# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.importers import BadFile
from dnnsuite.importers._sqlite import Database, opened, tables_in
from importer_samples import sqlite


def test_columns_by_our_names_and_texts_by_number(tmp_path):
    path = sqlite(
        tmp_path / "x", {"t": ("start end name", [(1, 2, 7), (3, None, 8)]), "s": ("id value", [(7, "seven")])}
    )
    assert tables_in(path) == {"t", "s"}
    with opened(path) as db:
        file = Database(path, db)
        file.read_strings("s", "id")
        found = file.columns("t", {"t1_ns": "end", "name": "name", "gone": "nothing"})
        assert {name: values.tolist() for name, values in found.items()} == {
            "t1_ns": [2, 0],
            "name": [7, 8],
            "gone": [0, 0],
        }
        assert [file.strings[code] for code in file.codes(found["name"])] == ["seven", ""]
        assert len(file.columns("absent", {"a": "b"})["a"]) == 0


def test_what_is_no_database(tmp_path):
    (tmp_path / "x").write_bytes(b"SQLite format 3\0" + bytes(50))
    with pytest.raises(BadFile):
        tables_in(tmp_path / "x")
    with pytest.raises(BadFile, match=r"(?i)no such file"):
        tables_in(tmp_path / "gone")
