# SPDX-License-Identifier: MIT
import json
import re
from dataclasses import replace

import pytest

from command_line import status
from dnnsuite import report, results
from dnnsuite.errors import InvalidArgument
from report_runs import record


@pytest.fixture
def two(suite, tmp_path):
    """A machine of two copies and one of four, whose copies are half as fast again; three runs of two jobs."""
    sides = []
    for name, cpu, copies, factor in (("old", "EPYC", 2, 1.0), ("new", "Xeon", 4, 1.5)):
        records = [
            record(job, repeat, slot, rate * factor * (1 + 0.001 * repeat), copies=copies, cpu=cpu)
            for job, rate in (("vae", 100.0), ("dcgan", 30.0)) for repeat in range(3) for slot in range(copies)
        ]  # fmt: skip
        sides.append(suite(*records).rename(tmp_path / name))
    return sides


def test_speed_cost_and_energy_are_those_of_the_whole_machines(two):
    tables = tuple(results.load(side) for side in two)
    points = results.compare(*tables, ignoring=["processor", "copies"])
    made = report.machines(tables, points, ("old", "new"), report.costs_of_two("1.44,2.88", "500,600", "EUR"))
    row = made.table.loc["vae"]
    assert row["a_per_s"] == pytest.approx(200.2)
    assert row["b_per_s"] == pytest.approx(600.6)
    assert row["speed"] == pytest.approx(3.0)
    assert row["cost"] == pytest.approx(2 / 3)
    assert row["energy"] == pytest.approx(1.2 / 3)
    assert row["b_per_s"] / row["a_per_s"] == pytest.approx(row["speed"], rel=1e-12)
    assert made.means == pytest.approx({"speed": 3.0, "cost": 2 / 3, "energy": 0.4})
    assert made.systems[0]["processor"] != made.systems[1]["processor"]


def test_the_command_prints_them_writes_a_page_and_names_what_is_unknown(two, capsys, tmp_path):
    args = ["compare", *map(str, two), "--across", "machine", "--cost-per-hour", "1.44,2.88", "--currency", "EUR"]
    assert status(*args, "--out", str(tmp_path / "page.html")) == 0
    out = capsys.readouterr().out
    assert re.search(r"geometric mean +3\.000 +0\.667\n", out)
    assert "rates of the whole machine: 2 and 4 copies" in out
    assert all(len(line) <= 80 for line in out[out.rindex("the whole machine") :].splitlines())
    page = (tmp_path / "page.html").read_text()
    for text in ("EPYC", "Xeon", "B trains 3.000 times as fast as A", "0.667 times", "give --watts A,B", "<svg"):
        assert text in page
    assert status(*args, "--json") == 0
    plain = json.loads(capsys.readouterr().out)["machines"]
    assert plain["means"]["cost"] == pytest.approx(2 / 3)
    assert plain["means"]["energy"] is None


def test_a_page_whose_interval_contains_1_names_no_faster_machine(two):
    tables = tuple(results.load(side) for side in two)
    points = [
        replace(point, low=0.1, high=90.0) for point in results.compare(*tables, ignoring=["processor", "copies"])
    ]
    page = report.machines(tables, points, ("old", "new"), report.costs_of_two(None, None, "")).html()
    assert "Not decided which is faster" in page
    assert "times as fast as" not in page


def test_prices_that_are_not_two_are_refused(two, capsys):
    for given in ("2", "2,3,4", "a,b"):
        with pytest.raises(InvalidArgument, match="expected two numbers"):
            report.costs_of_two(given, None, "")
    args = ["compare", *map(str, two), str(two[0]), "--across", "machine", "--watts", "1,2"]
    assert status(*args) == 2
    assert "two machines, and 3 are named" in capsys.readouterr().err
