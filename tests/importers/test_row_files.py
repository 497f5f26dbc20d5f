# SPDX-License-Identifier: MIT
"""Rows in files, dealt out by their begin."""

import numpy as np
import pytest

from dnnsuite._files import OutputError
from dnnsuite.importers._row_files import RowFile, deal


def test_rows_are_dealt_out_by_their_begin(tmp_path):
    file = RowFile(tmp_path / "ops", 3)
    rows = [(begin, begin + 5, number) for number, begin in enumerate([30, 10, 20, 11, 29, 35])]
    for row in rows:
        file.extend(row)
    first, second, third = deal({"ops": file}, np.array([20, 30]))
    assert file.count == 6
    assert not file.path.exists()
    assert first["ops"].all().tolist() == [[10, 15, 1], [11, 16, 3]]
    assert second["ops"].all().tolist() == [[20, 25, 2], [29, 34, 4]]
    assert [third["ops"].count, third["ops"].all()[:, 2].tolist()] == [2, [0, 5]]


def test_many_rows_come_in_blocks(tmp_path):
    file = RowFile(tmp_path / "x", 2)
    file.append(np.arange(200_000).reshape(-1, 2))
    blocks = [*file.blocks()]
    assert len(blocks) > 1
    assert np.concatenate(blocks).ravel().tolist() == list(range(200_000))


def test_a_folder_that_is_not_there_is_named(tmp_path):
    file = RowFile(tmp_path / "no" / "x", 2)
    file.extend((1, 2))
    with pytest.raises(OutputError, match="TMPDIR"):
        file.all()
