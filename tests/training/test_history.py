# SPDX-License-Identifier: MIT
import math
import sys

import pytest

from dnnsuite.errors import Error
from dnnsuite.training.history import EventFiles, read_metrics, save_metrics

ROWS = [
    {"epoch": epoch, "learning_rate": 0.1 / 3, "loss/train": math.nan, "acc1/valid": epoch / 7, "seconds/train": 1.0}
    for epoch in (1, 2, 3)
]


def test_numbers_come_back_to_the_last_bit(tmp_path):
    save_metrics(tmp_path, ROWS)
    found = read_metrics(tmp_path)
    assert [row["acc1/valid"] for row in found] == [row["acc1/valid"] for row in ROWS]
    assert math.isnan(found[0]["loss/train"])
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.csv"]


@pytest.mark.parametrize(
    "text", ["", "a,b\n1,2\n", "epoch\nfirst\n", pytest.param("epoch\n" + "1" * 200_000, id="long")]
)
def test_a_damaged_file_is_named(tmp_path, text):
    (tmp_path / "metrics.csv").write_text(text)
    with pytest.raises(Error, match=r"metrics\.csv"):
        read_metrics(tmp_path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_event_files_have_the_originals_tags(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for rows, done in ((ROWS[:2], 0), (ROWS[1:], 1)):  # resumed after the first: the second is written again
        files = EventFiles(tmp_path, done)
        for row in rows:
            files.add(row)
        files.close()
    events = accumulator.EventAccumulator(str(tmp_path / "tb_logs"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {"loss/train", "acc1/valid", "learning_rate"}
    assert [each.step for each in events.Scalars("acc1/valid")] == [1, 2, 3]


def test_without_tensorboard_there_is_a_note(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    files = EventFiles(tmp_path, 0)
    files.add(ROWS[0])
    files.close()
    assert "dnnsuite[tensorboard]" in files.note
    assert not list(tmp_path.iterdir())
