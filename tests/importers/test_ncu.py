# SPDX-License-Identifier: MIT
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite.importers import BadFile, ncu
from importer_samples import FIXTURES

OLD, NEW, RAW = (FIXTURES / f"ncu_{name}.csv" for name in ("details_old", "details_new", "raw"))
CYCLES = "gpc__cycles_elapsed.max"


def value(table, kernel, metric):
    (found,) = table[(table["kernel_id"] == kernel) & (table["metric"] == metric)]["value"]
    return found


def test_the_old_header_with_banners_groups_and_scaled_units():
    table = ncu.read(OLD)
    assert list(table.columns) == [
        "kernel_id", "process", "name", "device", "context", "stream", "section", "metric", "unit", "value", "text",
    ]  # fmt: skip
    assert set(table.attrs["definitions"]) == set(table.columns)
    assert table["kernel_id"].unique().tolist() == [0, 1]
    assert value(table, 0, CYCLES) == 1_000_000
    assert value(table, 1, CYCLES) == 3_000_000  # 3,000 Kcycle
    assert set(table[table["metric"] == CYCLES]["unit"]) == {"cycle"}
    assert table["name"].iloc[-1] == "void relu<float, 4>(float*, int)"
    assert math.isnan(value(table, 0, "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed"))


def test_the_new_header_with_processes_that_alternate_rules_and_output_between_rows():
    table = ncu.read(NEW)
    assert table.groupby("kernel_id")["name"].first().tolist() == ["sm90_xmma_gemm_f32", "reduce_kernel", "last_kernel"]
    assert table.groupby("kernel_id")["process"].first().tolist() == ["100", "200", "100"]
    assert value(table, 0, "Duration") == 12_500
    assert value(table, 1, "Duration") == 1_250_000
    assert value(table, 0, "DRAM Frequency") == pytest.approx(2.6e9)
    assert value(table, 2, "Memory Throughput") == pytest.approx(1.5e9)
    assert table[table["metric"] == "Function Cache Configuration"]["text"].tolist() == ["CachePreferNone"]
    assert len(table) == 5  # the row of a rule is none of them


def test_the_raw_page():
    table = ncu.read(RAW)
    assert len(table) == 3 * 6
    assert value(table, 2, "gpu__time_duration.sum") == 1_003_000
    wide = ncu.launches(table)
    assert wide[CYCLES].tolist() == [10_000, 10_000, 20_000]
    assert wide["name"].tolist() == ["gemm", "gemm", "copy"]
    assert wide["sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"].isna().tolist() == [
        False,
        False,
        True,
    ]


def test_both_pages_say_the_same(tmp_path):
    """The raw page's numbers as a details page: nothing may differ but the section."""
    raw = ncu.read(RAW)
    lines = ['"ID","Process ID","Kernel Name","Context","Stream","Device","Metric Name","Metric Unit","Metric Value"']
    for row in raw.itertuples():
        printed = row.text if isinstance(row.text, str) else ("n/a" if math.isnan(row.value) else f"{row.value:,.1f}")
        lines.append(f'"{row.kernel_id}","7","{row.name}","1","7","0","{row.metric}","{row.unit}","{printed}"')
    path = tmp_path / "details.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = ncu.read(path)
    assert found["text"].isna().equals(raw["text"].isna())
    assert found.astype(str).equals(raw.astype(str))


@given(st.integers(1, 60))
def test_the_last_kernel_counts(tmp_path_factory, count):
    path = tmp_path_factory.mktemp("ncu") / "x.csv"
    rows = [f'"{n}","1","k{n}","{CYCLES}","cycle","{n + 1:,}"' for n in range(count)]
    header = '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
    path.write_text("\n".join([header, *rows]), encoding="utf-8")  # and no newline at the end
    assert ncu.read(path)["value"].tolist() == [n + 1 for n in range(count)]


def test_a_header_that_is_repeated_begins_other_launches(tmp_path):
    path = tmp_path / "twice.csv"
    path.write_text(OLD.read_text() + OLD.read_text(), encoding="utf-8")
    table = ncu.read(path)
    assert table["kernel_id"].unique().tolist() == [0, 1, 2, 3]
    assert table["value"].iloc[:10].equals(table["value"].iloc[10:].reset_index(drop=True))


def changed(tmp_path, old, new, source=OLD):
    path = tmp_path / "changed.csv"
    text = source.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"%","0.5"\n', '"%","0.', r"changed.csv:17: a quote is left open"),
        ('"%","40"\n', '"%"\n', r"changed.csv:9: 11 fields where the header has 12"),
        ('"cycle","1,000,000"', '"cycle","1,0"', r"changed.csv:8: '1,0' is not a number"),
        ('"0","4242"', 'loss 3.1"0","4242"', r"changed.csv:8: a row of ncu behind other output"),
        ('"Metric Unit"', '"Metric Name"', r"changed.csv:7: column 'Metric Name' occurs twice"),
        ('"Metric Unit"', '"Unit"', r"changed.csv:7: no column 'Metric Unit'"),
        ('"ID",', '"Number",', r"changed.csv: no header"),
    ],
)
def test_damage_is_named_by_file_and_line(tmp_path, old, new, message):
    with pytest.raises(BadFile, match=message):
        ncu.read(changed(tmp_path, old, new))


def test_files_without_launches(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(OLD.read_text().split('"0",')[0], encoding="utf-8")
    with pytest.raises(BadFile, match=r"x.csv:7: a header and no kernel"):
        ncu.read(path)
    path.write_text('"Process ID","Kernel Name","Invocations","Metric Name","Average"\n', encoding="utf-8")
    with pytest.raises(BadFile, match="--print-summary"):
        ncu.read(path)
    with pytest.raises(BadFile, match="row of units"):
        ncu.read(changed(tmp_path, '"","","","","","","","","","","","cycle"', '"units"\n"","', RAW))


DETAILS = '"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"\n'


def test_numbers_of_a_locale_with_a_decimal_comma(tmp_path):
    path = tmp_path / "german.csv"
    rows = [("sm__inst.sum", "inst", "117.344"), ("gpu__time_duration.sum", "usecond", "3,25")]
    text = DETAILS + "".join(f'"0","1","k","s","{n}","{u}","{v}"\n' for n, u, v in rows)
    path.write_text(text, encoding="utf-16")  # as PowerShell writes it
    assert ncu.read(path)["value"].tolist() == [117344, 3250]
    path.write_text(text.replace('"3,25"', '"3.256"'), encoding="utf-8")  # only the count tells
    assert ncu.read(path)["value"].tolist() == [117344, 3256000]
    path.write_text(text.replace('"3,25"', '"3.25"'), encoding="utf-8")  # and here that there are decimal points
    assert ncu.read(path)["value"].tolist() == [117.344, 3250]


def test_numbers_of_such_a_locale_on_the_raw_page(tmp_path):
    path = tmp_path / "raw.csv"
    path.write_text(
        '"ID","Process ID","Kernel Name","sm__inst.sum","gpu__time_duration.sum"\n"","","","inst","usecond"\n'
        '"0","1","k","117.344","1.234,5"\n',
        encoding="utf-8",
    )
    assert ncu.read(path)["value"].tolist() == [117344, 1234500]
