# SPDX-License-Identifier: MIT
"""`dnnsuite baseline save` and `check`, by command."""

import json

import pytest

from dnnsuite.cli.app import main
from report_runs import record, suite  # noqa: F401  (a fixture)


def status(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(each) for each in arguments])
    return ended.value.code


@pytest.fixture
def made(suite):  # noqa: F811
    """Writes an output with three runs at about so many items a second."""

    def write(directory, rate, **more):
        runs = [record(repeat=i, rate=rate * factor, **more) for i, factor in enumerate((1.0, 1.001, 0.999))]
        return suite(*runs, directory=directory)

    return write


def test_a_baseline_is_kept_and_checked(made, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    a, same, slow = made("a", 100.0), made("b", 100.0), made("c", 90.0)
    assert status("baseline", "check", same) == 2
    assert "dnnsuite baseline save" in capsys.readouterr().err
    assert status("baseline", "save", a) in (0, None)
    assert capsys.readouterr().out == "dnnsuite-baseline.csv: 3 runs of 1 job\n"
    assert status("baseline", "save", a) == 2
    assert "--replace" in capsys.readouterr().err
    assert status("baseline", "save", a, "--replace") in (0, None)
    assert status("baseline", "check", same) in (0, None)
    assert status("baseline", "check", slow) == 1
    assert status("baseline", "check", slow, "--fail-on", "slower:20%") in (0, None)


def test_a_check_that_decides_nothing_does_not_pass(made, suite, capsys, tmp_path):  # noqa: F811
    file = tmp_path / "b.csv"
    assert status("baseline", "save", made("a", 100.0), "-b", file) in (0, None)
    one = suite(record(), directory="one")  # says nothing of its variation
    assert status("baseline", "check", one, "-b", file) == 3
    assert "nothing is decided: of no point is it known whether it fails" in capsys.readouterr().err
    assert status("baseline", "check", one, "-b", file, "--fail-on", "failed") in (0, None)
    assert status("baseline", "check", suite(record("reso"), directory="other"), "-b", file) == 3
    noisy = suite(*(record(repeat=i, rate=r) for i, r in enumerate((98, 100, 102))), directory="noisy")
    assert status("baseline", "check", noisy, "-b", file, "--fail-on", "slower:4%") == 3  # it may be, by 4.8 %
    assert status("baseline", "check", noisy, "-b", file) in (0, None)  # but not by 5 %
    assert status("compare", tmp_path / "a", one) in (0, None)  # which checks nothing
    assert status("compare", tmp_path / "a", one, "--fail-on", "slower:5%") == 3


def test_runs_that_may_not_be_pooled_are_no_baseline(made, capsys, tmp_path):
    file = tmp_path / "b.csv"
    assert status("baseline", "save", made("a", 1.0), made("b", 1.0, cpu="Xeon"), "-b", file) == 2
    assert "processor differs" in capsys.readouterr().err
    assert not file.exists()


def test_a_job_whose_copies_differ_is_left_out_alone(suite, capsys, tmp_path):  # noqa: F811
    out = suite(record(), record("reso", slot="0"), record("reso", slot="1", unit="tokens"), directory="odd")
    file = tmp_path / "b.csv"
    assert status("baseline", "save", out, "-b", file, "--json") in (0, None)
    said = capsys.readouterr()
    assert json.loads(said.out) == {"baseline": str(file), "runs": 1, "jobs": 1}
    assert "reso is left out: its copies differ in unit (images, tokens)" in said.err
    assert status("plot", out) in (0, None)
    assert "reso is left out" in capsys.readouterr().err


def test_runs_of_which_a_copy_failed_are_no_baseline(suite, capsys, tmp_path):  # noqa: F811
    lost = [record(repeat=i, slot=slot, copies=2, failure=None if slot else "oom") for i in range(2) for slot in (0, 1)]
    assert status("baseline", "save", suite(*lost, directory="lost"), "-b", tmp_path / "b.csv") == 2
    assert "no run ended well in all its copies" in capsys.readouterr().err
    alone = record(repeat=3, copies=2)  # the record of the other copy is lost
    assert status("baseline", "save", suite(alone, directory="alone"), "-b", tmp_path / "b.csv") == 2
    assert status("plot", tmp_path / "alone") == 2
    assert "no run finished" in capsys.readouterr().err
    more = [alone, *(record("vae", repeat=2, slot=slot, copies=2) for slot in (0, 1))]
    assert status("baseline", "save", suite(*lost, *more, directory="some"), "-b", tmp_path / "b.csv", "--json") in (
        0,
        None,
    )
    assert json.loads(capsys.readouterr().out)["runs"] == 2
