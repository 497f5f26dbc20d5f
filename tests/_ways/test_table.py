# SPDX-License-Identifier: MIT
"""Answers that are kept between processes, and for how long they count."""

import json

import pytest

from dnnsuite._ways import Answer, Table, key_of

NOW = 1e9
HOUR, DAY = 3600, 24 * 3600


def answer(way="quick", at=NOW, **seconds):
    return Answer(way, seconds or {"quick": (1.0, 1.2), "slow": (2.0, 2.5)}, at=at)


def opened(tmp_path, now=NOW):
    return Table(tmp_path / "ways.json", lambda: now)


@pytest.mark.parametrize("way", ["quick", 3, True])
def test_an_answer_is_known_to_later_processes(tmp_path, way):
    found = Answer(way, {str(way): (1.0, 1.5), "other": (2.0, 3.0)}, ("not tried",), NOW)
    opened(tmp_path).put("k", found)
    table = opened(tmp_path)
    assert table.get("k") == found
    assert table.get("other") is None


def test_the_newest_answer_of_all_processes_is_kept(tmp_path):
    opened(tmp_path).put("b", answer("old"))
    first, second = opened(tmp_path), opened(tmp_path)
    first.put("a", answer())
    second.put("b", answer("new", NOW + 1))
    first.put("c", answer())
    table = opened(tmp_path, NOW + 2)
    assert [table.get(key).way for key in "abc"] == ["quick", "new", "quick"]


@pytest.mark.parametrize(
    ("seconds", "counts", "no_more"),
    [
        ({"quick": (1.0, 1.2), "slow": (1.3, 9.0)}, 6 * DAY, 8 * DAY),
        ({"quick": (1.0, 1.4), "slow": (1.3, 9.0)}, HOUR / 2, 2 * HOUR),  # one of them was disturbed
        ({"quick": (1.0, 1.2)}, 6 * DAY, 8 * DAY),  # the only one that was tried
        ({"slow": (1.0, 1.2)}, HOUR / 2, 2 * HOUR),  # it was not tried itself
    ],
)
def test_an_answer_counts_for_long_only_if_it_is_clear(tmp_path, seconds, counts, no_more):
    opened(tmp_path).put("k", answer(**seconds))
    assert opened(tmp_path, NOW + counts).get("k") is not None
    assert opened(tmp_path, NOW + no_more).get("k") is None
    assert opened(tmp_path, NOW - DAY).get("k") is None  # a clock that was wrong then or is now


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00", '{"k": 3}', '{"k": {"way": 1, "seconds": {"1": 2}}}'])
def test_a_broken_file_costs_a_trial_only(tmp_path, content):
    (tmp_path / "ways.json").write_text(content)
    table = opened(tmp_path)
    assert table.get("k") is None
    table.put("k", answer())
    assert opened(tmp_path).get("k") == answer()
    assert set(json.loads(table.path.read_text())) == {"k"}


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    table = opened(tmp_path / "file")
    table.put("k", answer())
    assert table.get("k") == answer()


def test_a_key_tells_shapes_apart():
    assert len({key_of("sum", shape, threads) for shape in ([2, 3], [6]) for threads in (1, 2)}) == 4
