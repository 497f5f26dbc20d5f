# SPDX-License-Identifier: MIT
"""Files are recognised by their content, and read by the reader of their kind."""

import pytest

from dnnsuite import importers
from dnnsuite.errors import InvalidArgument
from importer_samples import FIXTURES, new_schema, sqlite


@pytest.mark.parametrize(
    ("name", "kind"), [("dmon.txt", "dcgm"), ("ncu_raw.csv", "ncu"), ("nvvp_full.csv", "nvprof")]
)
def test_a_file_is_recognised_by_its_content(name, kind):
    assert importers.sniff(FIXTURES / name) == kind
    assert importers.load(FIXTURES / name).kind == kind


def test_only_a_trace_has_windows(tmp_path):
    assert importers.load(FIXTURES / "dmon.txt").windows == []
    assert importers.load(sqlite(tmp_path / "report.sqlite", new_schema())).windows


def test_an_unknown_kind_is_refused_with_those_there_are():
    with pytest.raises(InvalidArgument, match="'cupti': accepted are auto, ncu, nvprof"):
        importers.load(FIXTURES / "dmon.txt", "cupti")


def test_a_tools_own_format_is_refused_with_the_command_that_exports_it(tmp_path):
    path = tmp_path / "report.nsys-rep"
    path.write_bytes(b"")
    with pytest.raises(importers.BadFile, match=r"nsys export --type sqlite report\.nsys-rep"):
        importers.sniff(path)
