# SPDX-License-Identifier: MIT
import gzip
import json
import subprocess
import sys

import pytest

from dnnsuite.cli import import_
from dnnsuite.cli.app import main
from importer_samples import FIXTURES, kineto, new_schema, sqlite


def run(capsys, *arguments):
    try:
        main(["import", *map(str, arguments)])
    except SystemExit as ended:
        return ended.code or 0, *capsys.readouterr()
    return 0, *capsys.readouterr()


@pytest.fixture
def script(capsys, monkeypatch):
    """Calls a console command with these arguments: its status, and what it says."""

    def called(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            getattr(import_, name)()
        return ended.value.code or 0, *capsys.readouterr()

    return called


@pytest.mark.parametrize("path", sorted(FIXTURES.iterdir()), ids=lambda path: path.stem)
def test_each_kind_is_told_by_its_content(capsys, path):
    status, out, _ = run(capsys, path, "--json")
    dcgm = dict.fromkeys(("dmo", "exp", "dcg"), "dcgm")
    kind = {"ncu": "ncu", "nvv": "nvprof", "nvp": "nvprof", "nsy": "nsys-stats", **dcgm}[path.name[:3]]
    assert (status, json.loads(out)["kind"]) == (0, kind)


def test_a_trace_says_what_its_gpu_did(tmp_path, capsys):
    status, out, _ = run(capsys, sqlite(tmp_path / "x.sqlite", new_schema()))
    assert status == 0
    assert "nsys; 2 kernels, 2 memops, 3 api" in out
    assert "kernels_by_class:" in out
    assert "communication" in out
    status, out, _ = run(capsys, kineto(tmp_path / "x.json"), "--json")
    assert json.loads(out)["results"]["gpu"][0]["kernel_ns"] == 4250


def test_tables_are_written_with_their_definitions(tmp_path, capsys):
    status, _, err = run(capsys, FIXTURES / "ncu_details_old.csv", "--out", tmp_path / "made/here")
    assert status == 0
    assert sorted(path.name for path in (tmp_path / "made/here").iterdir()) == [
        "cores.csv",
        "definitions.json",
        "metrics.csv",
    ]
    assert "wrote" in err
    assert "value" in json.loads((tmp_path / "made/here/definitions.json").read_text())["metrics"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", b"a,b\n1,2\n", "no header of any of ncu, nvprof, nvvp, nsys, nsys-stats, dcgm, kineto"),
        ("x.ncu-rep", b"NVR\0", "ncu --import x.ncu-rep --csv --page raw"),
        ("x.nsys-rep", b"QDSTRM", "nsys export --type sqlite x.nsys-rep"),
        ("x.json", b"{}", "not a trace of torch.profiler"),
        ("x.csv", b"", "the file is empty"),
    ],
)
def test_other_files_are_refused_with_the_way_out(tmp_path, capsys, name, content, message):
    (tmp_path / name).write_bytes(content)
    status, out, err = run(capsys, tmp_path / name)
    assert (status, out) == (2, "")
    assert message in err
    assert name in err


def test_another_database_and_another_kind(tmp_path, capsys):
    path = sqlite(tmp_path / "x.nvvp", {"StringTable": ("id value", [])})
    assert "without tables of nsys or nvvp" in run(capsys, path)[2]
    assert "accepted: auto, ncu" in run(capsys, path, "--kind", "perf")[2]
    assert "no header" in run(capsys, FIXTURES / "dmon.txt", "--kind", "ncu")[2]


def test_coreutil_prints_what_tbd_printed(script):
    code = "from dnnsuite.cli.import_ import coreutil; coreutil()"
    command = [sys.executable, "-c", code, str(FIXTURES / "ncu_details_old.csv")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout == "fma\t17.50000 %\nfp16\t3.00000 %\ntensor\t20.00000 %\nsfu\t0.75000 %\n"
    assert done.stderr == "coreutil: tensor: 1 of 2 launches have no value and are left out\n"
    found = json.loads(script("coreutil", FIXTURES / "ncu_raw.csv", "--json")[1])["cores"]
    assert [each["core"] for each in found] == ["fma", "tensor"]


def test_fp32util_prints_what_tbd_printed(script):
    status, out, err = script("fp32util", FIXTURES / "nvvp_full.csv")
    assert status == 0
    assert out.startswith("total duration (ns): 10000\naverage util scale: 5.50000\n")
    assert "1 launches (500 ns) have no level" in err


@pytest.mark.parametrize("name", ["coreutil", "fp32util"])
def test_scripts_fail_in_one_line_with_status_two(script, tmp_path, name):
    status, out, err = script(name, tmp_path / "gone.csv")
    assert (status, out) == (2, "")
    assert err.startswith(f"{name}: error: {tmp_path / 'gone.csv'}: No such file")
    assert err.count("\n") == 1
    assert "file" in script(name, "--help")[1]


def test_help_needs_neither_torch_nor_pandas():
    code = (
        "import sys; from dnnsuite import importers; from dnnsuite.cli import import_; "
        "print({'torch', 'pandas', 'numpy', 'matplotlib'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_ranks_and_comparisons(tmp_path, capsys):
    for rank, compute in enumerate((200, 700)):
        events = [
            {"ph": "X", "cat": "kernel", "name": name, "ts": begin, "dur": length, "args": {}}
            for name, begin, length in (("gemm", 0, compute), ("ncclAllReduce", compute, 1000 - compute))
        ]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps({"traceEvents": events}))
    status, out, err = run(capsys, tmp_path)
    assert status == 0
    assert "ranks; 4 kernels" in out
    assert "rank 1 is the straggler" in err
    status, out, err = run(capsys, tmp_path / "rank1.json", "--against", tmp_path / "rank0.json", "--json")
    rows = json.loads(out)["results"]["kernels_compared"]
    assert rows[0]["change_ms"] == pytest.approx(0.5)
    status, _, err = run(capsys, tmp_path, "--against", tmp_path / "rank0.json")
    assert status == 2
    assert "one file with another" in err
    (tmp_path / "empty").mkdir()
    assert run(capsys, tmp_path / "empty")[0] == 2


def test_a_terminal_obeys_no_name_in_a_file(tmp_path, capsys):
    path = tmp_path / "dmon.txt"
    text = (FIXTURES / "dmon_old.txt").read_bytes()
    path.write_bytes(text.replace(b"GPUTL", b"GP\x1b]0;owned\x07\x1b[2JUTL"))
    assert path.read_bytes() != text
    status, out, err = run(capsys, path)
    assert status == 0
    assert "\x1b" not in out + err


def test_a_folder_is_read_without_what_is_no_trace(tmp_path, capsys):
    for rank, compute in enumerate((200, 700)):
        events = [
            {"ph": "X", "cat": "kernel", "name": name, "ts": begin, "dur": length, "args": {}}
            for name, begin, length in (("gemm", 0, compute), ("ncclAllReduce", compute, 1000 - compute))
        ]
        text = json.dumps({"traceEvents": events})
        (tmp_path / f"rank{rank}.json").write_text(text)
        (tmp_path / f"rank{rank}.json.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "config.json").write_text('{"hidden": 3}')
    status, out, err = run(capsys, tmp_path)
    assert status == 0
    assert "ranks; 4 kernels" in out
    assert "config.json: JSON that is not a trace of torch.profiler: left out" in err
    assert "rank0.json.gz: skipped, because rank0.json is there as well" in err
    assert run(capsys, tmp_path / "config.json")[0] == 2  # a file that was named is not left out
    (tmp_path / "rank1.json").write_text('{"traceEvents": [')  # nor a trace that is damaged
    assert run(capsys, tmp_path)[0] == 2


def test_sums_of_calls_copies_and_ranges_are_printed_in_at_most_100_columns(tmp_path, capsys):
    path = sqlite(tmp_path / "x.sqlite", new_schema())
    status, out, _ = run(capsys, path)
    assert status == 0
    for name in ("gpu", "calls_by_name", "copies", "ranges", "kernels_by_range"):
        assert f"{name}:" in out
    assert max(map(len, out.replace(str(tmp_path), "").splitlines())) <= 100
    assert out.count("host_bound_pct") == 1
