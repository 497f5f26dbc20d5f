# SPDX-License-Identifier: MIT
"""Files are recognised by their content, and read by the reader of their kind."""

import re

import pytest

from dnnsuite import importers
from dnnsuite.errors import InvalidArgument
from importer_samples import FIXTURES, new_schema, sqlite


@pytest.mark.parametrize(("name", "kind"), [("dmon.txt", "dcgm"), ("ncu_raw.csv", "ncu"), ("nvvp_full.csv", "nvprof")])
def test_a_file_is_recognised_by_its_content(name, kind):
    assert importers.sniff(FIXTURES / name) == kind
    assert importers.load(FIXTURES / name).kind == kind


def test_only_a_trace_has_windows(tmp_path):
    assert importers.load(FIXTURES / "dmon.txt").windows == []
    assert importers.load(sqlite(tmp_path / "report.sqlite", new_schema())).windows


def test_an_unknown_kind_is_refused_with_those_there_are():
    with pytest.raises(InvalidArgument, match="'cupti'; accepted: auto, ncu, nvprof"):
        importers.load(FIXTURES / "dmon.txt", "cupti")


def test_a_tools_own_format_is_refused_with_the_command_that_exports_it(tmp_path):
    path = tmp_path / "report.nsys-rep"
    path.write_bytes(b"")
    with pytest.raises(importers.BadFile, match=r"nsys export --type sqlite report\.nsys-rep"):
        importers.sniff(path)


@pytest.mark.parametrize(
    ("text", "way_out"),
    [
        ("version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 7\n", "git lfs pull --include"),
        ('<?xml version="1.0" encoding="UTF-8"?>\n<com.nvidia.viper.session version="3"/>\n', "nvprof -o"),
        (" Time (%)  Total Time (ns)  Instances\n --------  ---------------\n  28.7   6,680,355\n", "--format csv"),
        ("==PROF== Connected to process 7\n  sgemm (4, 1, 1)x(32, 1, 1), Context 1\n", "ncu --import"),
        ("timestamp, index, utilization.gpu [%]\n2024/05/01 12:00:00.000, 0, 93 %\n", "dcgmi dmon"),
        ('"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n"gemm",10,1000,100,100\n', "export_chrome_trace"),
    ],
)
@pytest.mark.parametrize("name", ["file.txt", "trace.json"])
def test_what_is_not_read_names_the_way_to_what_is(tmp_path, text, way_out, name):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(importers.BadFile, match=re.escape(way_out)) as caught:
        importers.load(path)
    assert not caught.value.kind_is_known
