# SPDX-License-Identifier: MIT
"""The records of trials in one file: what is read of it whole, cut, edited, and written by several processes."""

from dataclasses import replace

import pytest

from dnnsuite._files import OutputError
from dnnsuite._runs.reading import Lines, TrialLog, read_trials
from dying_writes import in_child
from result_tables import a_record


def trial(name, epochs, status="running", plan="plan"):
    return replace(a_record(name), plan_id=plan, details={"epochs": epochs, "status": status})


def reached(folder):
    return {name: record.details["epochs"] for name, record in read_trials(folder)[0]}


def test_half_of_a_line_is_no_line_and_goes_before_the_next(tmp_path):
    path = tmp_path / "lines"
    path.write_text("a\nb\nhalf")
    lines = Lines(path)
    assert lines.read() == ["a", "b"]
    lines.add(["c", "d"])
    assert path.read_text() == "a\nb\nc\nd\n"
    assert lines.read() == ["c", "d"]


def test_the_last_record_of_a_trial_counts_and_of_several_processes_the_furthest(tmp_path):
    first, second = TrialLog(tmp_path / "trials-a.jsonl"), TrialLog(tmp_path / "trials-b.jsonl")
    first.add({"trial-0": trial("x", 1), "trial-1": trial("y", 1)})
    first.add({"trial-0": trial("x", 2)})
    assert reached(tmp_path) == {"trial-0": 2, "trial-1": 1}
    second.add({"trial-0": trial("x", 1), "trial-1": trial("y", 3)})
    assert reached(tmp_path) == {"trial-0": 2, "trial-1": 3}
    first.add({"trial-1": trial("y", 3, "done")})
    assert [record.details["status"] for _, record in read_trials(tmp_path)[0]] == ["running", "done"]
    second.add({"trial-0": trial("x", 9, plan="another")})
    assert sorted(record.details["epochs"] for _, record in read_trials(tmp_path)[0]) == [2, 3, 9]


def test_a_line_that_was_cut_or_edited_is_named(tmp_path):
    log = tmp_path / "trials.jsonl"
    TrialLog(log).add({"trial-0": trial("x", 1), "trial-1": trial("y", 1)})
    whole = log.read_text()
    log.write_text(whole.replace('"epochs": 1', '"epochs": 7', 1) + whole[:100])
    assert reached(tmp_path) == {"trial-1": 1}
    assert [problem.partition(": ")[2][:60] for problem in read_trials(tmp_path)[1]] == [
        f"{log}: its last line is half of one, as a killed process leaves it"[:60],
        f"{log}, line 1: it was changed after it was written"[:60],
    ]
    TrialLog(log).add({"trial-0": trial("x", 2)})  # in the place of the half
    assert reached(tmp_path) == {"trial-0": 2, "trial-1": 1}


def test_a_folder_in_the_place_of_the_file_is_named(tmp_path):
    (tmp_path / "trials.jsonl").mkdir()
    with pytest.raises(OutputError, match=r"trials\.jsonl: Is a directory"):
        TrialLog(tmp_path / "trials.jsonl").add({"trial-0": trial("x", 1)})
    assert "Is a directory" in read_trials(tmp_path)[1][0]


def test_a_log_does_not_grow_without_an_end(tmp_path):
    """A trial under way is written each minute, with its whole history; the last line alone counts."""
    path = tmp_path / "trials.jsonl"
    log = TrialLog(path, spare_bytes=0)
    for epochs in range(40):
        log.add({"trial-0": trial("x", epochs), "trial-1": trial("y", epochs)})
        assert reached(tmp_path) == {"trial-0": epochs, "trial-1": epochs}
        assert len(path.read_text().splitlines()) <= 6
    TrialLog(path, spare_bytes=0).add({"trial-0": trial("x", 50)})
    assert reached(tmp_path) == {"trial-0": 50, "trial-1": 39}


def test_a_kill_leaves_all_or_none_of_the_records_that_are_of_one_moment(tmp_path):
    def written(at_once):
        TrialLog(tmp_path / "trials.jsonl").add({f"trial-{i}": trial("x", 2) for i in range(3)}, at_once)

    for number in range(1, 4):
        TrialLog(tmp_path / "trials.jsonl").add({f"trial-{i}": trial("x", 1) for i in range(3)})
        in_child(lambda: written(True), number)
        assert len(set(reached(tmp_path).values())) == 1, number
        (tmp_path / "trials.jsonl").unlink()
