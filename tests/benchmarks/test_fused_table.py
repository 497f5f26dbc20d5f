# SPDX-License-Identifier: MIT
"""Rows to speeds, Markdown, CSV and figure; the place of the table in another file."""

import math

import fused_table as table
import pytest
from fused_table import Group, Row
from hypothesis import given
from hypothesis import strategies as st
from setting import Setting

from dnnsuite.errors import Error

MACHINE = "a machine"


def rows(workload="mlp_s", B=8, threads=1, notes=(), device="cpu", precision="fp32", **seconds):
    group = Group(Setting(threads, device, precision), B, workload)
    return table.rows_of(group, seconds, dict(notes), MACHINE)


def test_speed_is_over_serial_round_by_round():
    """Rounds of a machine that slows down: the times spread, their ratios do not."""
    base = [0.8, 1.6, 3.2, 6.4, 12.8]
    found = table.speed(base, [value / 4 for value in base])
    assert found.median_s == 0.8
    assert (found.ratio, found.low, found.high) == pytest.approx((4, 4, 4))


def test_speed_is_the_geometric_mean_within_its_interval():
    found = table.speed([1.0, 1.0, 1.0], [1.0, 0.5, 0.25])
    assert found.ratio == pytest.approx(2)
    assert 0 < found.low < 2 < found.high  # three rounds tell little


def test_one_round_has_no_interval():
    found = table.speed([2.0], [1.0])
    assert found.ratio == pytest.approx(2)
    assert math.isnan(found.low)
    assert math.isnan(found.high)


@given(st.lists(st.tuples(st.floats(1e-6, 1e3), st.floats(1e-6, 1e3)), min_size=3, max_size=7))
def test_to_exchange_the_two_is_to_invert_the_ratio(times):
    base, own = zip(*times, strict=True)
    there, back = table.speed(list(base), list(own)), table.speed(list(own), list(base))
    assert there.ratio * back.ratio == pytest.approx(1)


def test_markdown():
    made = rows(serial=[0.004, 0.004], dnnsuite=[0.001, 0.001], vmap=[0.002, 0.002])
    made += rows("lstm", serial=[0.1, 0.1], dnnsuite=[0.2, 0.2], notes={"vmap": "no LSTM here"})
    assert table.markdown(made) == (
        "Times as fast as `serial` [95 %], one thread, CPU time:\n\n"
        "| workload | dnnsuite | vmap | B | serial, ms |\n"
        "|---|---|---|---|---|\n"
        "| mlp_s | **4.00** [4.00, 4.00] | 2.00 [2.00, 2.00] | 8 | 4 |\n"
        "| lstm | 0.50 [0.50, 0.50] | – | 8 | 100 |\n\n"
        "– `vmap`: no LSTM here (lstm)  \n"
        "a machine.\n"
    )


def test_the_share_of_the_roof_stands_beside_the_speeds():
    made = rows(serial=[0.004, 0.004], dnnsuite=[0.001, 0.001], roof=[0.0008] * 2, notes={"roof": "in mm 20 %"})
    made += rows("lstm", serial=[0.1], roof=[0.01])
    text = table.markdown(made)
    assert "| workload | dnnsuite | of the roof | B | serial, ms |" in text
    assert "| **4.00** [4.00, 4.00] | 0.80 |" in text
    assert "| lstm | – | – | 8 | 100 |" in text
    assert "`roof`: in mm 20 % (mlp_s)" in text


def test_each_setting_has_its_table():
    places = [
        ({}, "one thread, CPU time"),
        ({"threads": 2}, "2 threads, wall time"),
        ({"precision": "bf16"}, "bf16 by autocast, one thread, CPU time"),
        ({"device": "cuda:0"}, "cuda:0, wall time"),
        ({"device": "cuda:0", "precision": "fp16"}, "fp16 by autocast, cuda:0, wall time"),
    ]
    text = table.markdown([row for place, _ in places for row in rows(serial=[1.0], vmap=[1.0], **place)])
    for _, title in places:
        assert text.count(f"Times as fast as `serial` [95 %], {title}:") == 1


def test_without_serial_there_is_no_speed():
    assert table.speeds(rows(vmap=[1.0])) == {}
    assert table.markdown(rows(vmap=[1.0])) == "Nothing was measured.\n"


def test_csv_gives_the_rows_back(tmp_path):
    made = rows(serial=[0.1, 0.3], vmap=[0.2, 1e-7], notes={"hfta": 'says "no", twice'})
    made += rows(device="cuda:1", precision="bf16", serial=[0.1])
    table.write_csv(tmp_path / "fused.csv", made)
    assert table.read_csv(tmp_path / "fused.csv") == made
    assert [path.name for path in tmp_path.iterdir()] == ["fused.csv"]
    assert table.read_csv(tmp_path / "none.csv") == []


def test_rows_of_old_are_of_a_cpu_in_fp32(tmp_path):
    path = tmp_path / "fused.csv"
    path.write_text(
        "workload,B,threads,variant,round,seconds_per_model_step,note,machine\nmlp_s,8,1,serial,0,0.5,,a machine\n"
    )
    assert table.read_csv(path) == rows(serial=[0.5])


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "workload,B,threads,variant,round,note,machine\nx,y,1,v,0,,\n"])
def test_another_csv_is_refused_by_name(tmp_path, text):
    path = tmp_path / "other.csv"
    path.write_text(text)
    with pytest.raises(Error, match=r"other\.csv"):
        table.read_csv(path)


def test_put_fills_the_place_of_the_table_again_and_again(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    for text in ("first\n", "second\n"):
        table.put(text, path)
        assert path.read_text() == f"before\n{table.BEGIN}\n{text}{table.END}\nafter\n"


def test_put_makes_a_file_and_spoils_none(tmp_path):
    for text in ("old\n", "text\n"):
        table.put(text, tmp_path / "new.md")
    assert (tmp_path / "new.md").read_text() == f"{table.BEGIN}\ntext\n{table.END}\n"
    for other in ("no place\n", f"{table.END} {table.BEGIN}\n"):
        (tmp_path / "other.md").write_text(other)
        with pytest.raises(Error, match="no place for the table"):
            table.put("text\n", tmp_path / "other.md")
        assert (tmp_path / "other.md").read_text() == other


def test_figure(tmp_path):
    made = rows(serial=[0.4, 0.5], dnnsuite=[0.1, 0.1]) + rows(B=2, serial=[0.4], vmap=[0.5])
    made += rows(device="cuda:0", serial=[0.4], vmap=[0.5])
    table.draw(made, tmp_path / "fused.png")
    assert (tmp_path / "fused.png").read_bytes().startswith(b"\x89PNG")
    table.draw([], tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_a_row_knows_its_group():
    row = Row("w", 1, 2, "cuda:0", "bf16", "v", 0, 1.0, "", "m")
    assert row.group == (Setting(2, "cuda:0", "bf16"), 1, "w")
