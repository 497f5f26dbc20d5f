# SPDX-License-Identifier: MIT
"""Whatever a file holds, importing gives tables or an error of the package that names the file: nothing else."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dnnsuite import importers
from dnnsuite.errors import Error
from importer_samples import FIXTURES, kineto, new_schema, nvvp_schema, old_schema, sqlite

TEXTS = sorted(FIXTURES.iterdir())
slow_files = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


def imports_or_says(path, content, kinds=("auto",)):
    path.write_bytes(content)
    for kind in kinds:
        try:
            found = importers.load(path, kind)
        except Error as error:
            assert path.name in str(error)  # noqa: PT017
        else:
            assert found.tables
            assert all(len(table.columns) for table in found.tables.values())


@st.composite
def damaged(draw, content):
    """A file's bytes cut, with bytes replaced or put in, or without some of its lines."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(len(content) - 1, 0)))
        kind = draw(st.sampled_from(["cut", "replace", "insert", "lines"]))
        if kind == "cut":
            content = content[:at]
        elif kind == "lines":
            lines = content.split(b"\n")
            gone = draw(st.sets(st.integers(0, len(lines) - 1), max_size=5))
            content = b"\n".join(line for number, line in enumerate(lines) if number not in gone)
        else:
            new = draw(st.binary(min_size=1, max_size=8) | st.sampled_from([b'"', b",", b"\n", b"\r", b"-", b"1e999"]))
            content = content[:at] + new + content[at + (len(new) if kind == "replace" else 0) :]
    return content


@pytest.mark.parametrize("source", TEXTS, ids=lambda path: path.stem)
@slow_files
@given(data=st.data())
def test_damaged_text(folder, source, data):
    imports_or_says(folder / source.name, data.draw(damaged(source.read_bytes())))


@pytest.mark.parametrize("schema", [new_schema, old_schema, nvvp_schema])
@slow_files
@given(data=st.data())
def test_damaged_databases(folder, schema, data):
    whole = sqlite(folder / "whole.sqlite", schema()).read_bytes()
    imports_or_says(folder / "x.sqlite", data.draw(damaged(whole)), ("auto", "nsys", "nvvp"))


def test_a_schema_that_is_no_text(folder):
    whole = sqlite(folder / "whole.sqlite", old_schema()).read_bytes()
    imports_or_says(folder / "x.sqlite", whole.replace(b"CREATE TABLE", b"CREATE \x80ABLE"), ("auto", "nsys"))


@pytest.mark.parametrize("schema", [new_schema, nvvp_schema])
@slow_files
@given(data=st.data())
def test_databases_with_values_of_any_type(folder, schema, data):
    tables = schema()
    name = data.draw(st.sampled_from(sorted(tables)))
    columns, rows = tables[name]
    cell = st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=5) | st.binary(max_size=5)
    strange = data.draw(st.lists(st.tuples(*[cell] * len(columns.split())), min_size=1, max_size=4))
    path = sqlite(folder / "x.sqlite", tables | {name: (columns, [*rows, *strange])})
    imports_or_says(folder / "x.sqlite", path.read_bytes())


@slow_files
@given(data=st.data())
def test_damaged_traces(folder, data):
    whole = kineto(folder / "whole.json").read_bytes()
    imports_or_says(folder / "x.json", data.draw(damaged(whole)), ("auto", "kineto"))


@slow_files
@given(data=st.data())
def test_traces_with_values_of_any_type(folder, data):
    trace = json.loads(kineto(folder / "whole.json").read_bytes())
    strange = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.lists(st.integers())
    for _ in range(data.draw(st.integers(1, 3))):
        event = data.draw(st.sampled_from(trace["traceEvents"]))
        inside = event.get("args")
        where = data.draw(st.sampled_from([event, inside])) if inside and isinstance(inside, dict) else event
        where[data.draw(st.sampled_from(sorted(where)))] = data.draw(strange)
    imports_or_says(folder / "x.json", json.dumps(trace).encode())


@slow_files
@given(content=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_as_any_kind(folder, content):
    imports_or_says(folder / "x", content, ("auto", *importers.KINDS))
