# SPDX-License-Identifier: MIT
"""Events of a trace one at a time, whatever its size."""

import json
import tracemalloc

import pytest

from dnnsuite.importers import BadFile, kineto
from dnnsuite.importers._events import TraceFile


def test_a_large_trace_is_read_in_pieces(tmp_path):
    """Three chunks of the file, values over their edges, the memory that of the columns."""
    path, name = tmp_path / "large.json", "aten::" + "x" * 500
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"schemaVersion": 1, "traceEvents": [\n')
        for number in range(16_000):
            event = {"ph": "X", "cat": "cpu_op", "name": name, "ts": number * 10, "dur": 5, "args": {"é": "y" * 100}}
            file.write((",\n" if number else "") + json.dumps(event, ensure_ascii=False))
        file.write('\n], "traceName": "large"}')
    assert path.stat().st_size > 2 * (1 << 22)
    tracemalloc.start()
    try:
        tables = kineto.read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(tables["ops"]) == 16_000
    assert peak < 3 * path.stat().st_size


def test_a_cut_large_trace_names_its_last_line(tmp_path):
    path = tmp_path / "cut.json"
    path.write_text('{"traceEvents": [\n' + ",\n".join(['{"ph": "X", "cat": "cpu_op", "ts": 1}'] * 5))
    with pytest.raises(BadFile, match=r"cut.json:6: .*the file is cut"):
        kineto.read(path)


def test_events_and_what_stands_beside_them(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('\ufeff {"a": {"b": [1]}, "traceEvents": [1, {"c": 2},\n "d"], "e": -1.5}', encoding="utf-8")
    trace = TraceFile(path)
    assert [*trace] == [1, {"c": 2}, "d"]
    assert trace.about == {"a": {"b": [1]}, "e": -1.5}


@pytest.mark.parametrize(
    "text", ['{"traceEvents": [1', '{"traceEvents": [1]', '{"a" 1}', "[1, nope]", "7", "[" * 100_000]
)
def test_no_json_is_a_bad_file(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(BadFile, match=r"x\.json"):
        list(TraceFile(path))
