# SPDX-License-Identifier: MIT
import json
from pathlib import Path

import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.suites._suite import resolve

TOYS = {"plugins": ["suite_toys"], "device": "cpu"}


@pytest.fixture
def jobs_file(toys: None, tmp_path: Path):
    def write(*jobs: dict, name: str = "tweaked") -> str:
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(list(jobs), indent=1))
        return str(path)

    return write


def test_a_file_of_the_original_becomes_jobs(jobs_file, tmp_path: Path) -> None:
    (tmp_path / "data" / "ImageNet").mkdir(parents=True)
    path = jobs_file(
        {"name": "toy_reg", "cmd": "./regression/polynome/pytorch/run.sh",
         "args": {"--repeat": 20, "--number": 100, "--batch-size": 128, "--report": "$OUTPUT_DIRECTORY/$JOB_FILE",
                  "--cuda": "", "$DATA_DIRECTORY/ImageNet": ""}, "cgroup": "student"},
        {"name": "mine", "cmd": "/home/u/training/regression/polynome/pytorch/run.sh",
         "args": {"--repeat": [12, 13], "--no-cuda": ""}, "cgroup": "all"},
    )  # fmt: skip
    variables = {"OUTPUT_DIRECTORY": "/o", "JOB_FILE": "tweaked", "DATA_DIRECTORY": str(tmp_path / "data")}
    suite = resolve(path, {**TOYS, "variables": variables})
    assert (suite.name, suite.size, suite.source) == ("tweaked", 2, path)
    first, *fanned = suite.entries
    assert (first.index, first.key, first.job, first.scope) == (1, "toy_reg", "toy_reg", "student")
    assert (first.repeat, first.number, first.batch_size) == (20, 100, 128)
    assert first.dataroot == f"{tmp_path}/data/ImageNet"
    assert first.ignored == {"--report": "/o/tweaked"}
    assert [(e.index, e.key, e.job, e.scope, e.repeat, e.number) for e in fanned] == [
        (2, "mine", "toy_reg", "all", 12, 1000),
        (2, "mine.2", "toy_reg", "all", 13, 1000),
    ]
    assert first.command_line().startswith(
        "./regression/polynome/pytorch/run.sh --repeat 20 --number 100 --batch-size 128 --dataroot"
    )


def test_presets_and_options_are_stronger_than_the_file(jobs_file) -> None:
    path = jobs_file({"name": "toy-nap", "args": {"--repeat": 50, "--nap-s": 0.5, "--workers": 1}})
    (smoke,) = resolve(path, {**TOYS, "preset": "smoke"}).entries
    assert (smoke.repeat, smoke.number, smoke.options) == (2, 1, {"workers": 1, "nap_s": 0.5})
    (given,) = resolve(path, {**TOYS, "batch_size": 9, "precision": "bf16"}).entries
    assert (given.repeat, given.batch_size, given.precision) == (50, 9, "bf16")


def test_a_job_without_the_precision_is_left_out_and_says_so() -> None:
    (entry,) = resolve("toy_reg", {"device": "cpu", "precision": "bf16"}).entries
    assert entry.precision == "bf16"
    assert entry.missing == "it has no precision bf16 on cpu, only fp32, fp64"


@pytest.mark.parametrize("precision", ["bf61", "int8", "bfloat16", ""])
def test_an_unknown_precision_is_refused(precision: str) -> None:
    with pytest.raises(InvalidArgument, match=f"--precision {precision}: accepted: fp32, bf16, fp16"):
        resolve("toy_reg", {"device": "cpu", "precision": precision})


def test_a_file_may_not_ask_a_job_for_a_precision_that_it_has_not(jobs_file) -> None:
    path = jobs_file({"name": "toy_reg", "args": {"--half": ""}})
    with pytest.raises(InvalidArgument, match=r"tweaked.json:\d+: job \"toy_reg\", key \"--half\" asks for fp16"):
        resolve(path, TOYS)


def test_a_file_names_a_precision(jobs_file) -> None:
    path = jobs_file({"name": "toy-nap", "args": {"--precision": "bf16"}})
    (entry,) = resolve(path, TOYS).entries
    assert (entry.precision, entry.changed) == ("bf16", {"precision": "bf16"})


def test_variants_of_a_name_are_told_apart(jobs_file) -> None:
    path = jobs_file({"name": "toy-nap", "args": {"--number": [2, 4], "--batch-size": [16, 32]}},
                     {"name": "toy-all"}, {"name": "toy-nap", "args": {"--number": 2, "--batch-size": 16}})  # fmt: skip
    found = resolve(path, TOYS).entries
    assert [(e.key, e.variant) for e in found] == [
        ("toy-nap", "number=2, batch_size=16"),
        ("toy-nap.2", "number=2, batch_size=32"),
        ("toy-nap.3", "number=4, batch_size=16"),
        ("toy-nap.4", "number=4, batch_size=32"),
        ("toy-all", ""),
        ("toy-nap.5", "number=2, batch_size=16, #2"),
    ]
    assert [e.changed for e in found[:2]] == [{"batch_size": 16}, {"batch_size": 32}]


def test_names_that_would_share_a_folder_are_refused(jobs_file) -> None:
    def job(name: str) -> dict:
        return {"name": name, "cmd": "./regression/polynome/pytorch/run.sh"}

    with pytest.raises(InvalidArgument, match=r"'a\.2' is that of the 2\. job called 'a'"):
        resolve(jobs_file(job("a"), job("a"), job("a.2")), TOYS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('"--repeat": Infinity', "--repeat.* must be a whole number, got inf"),
        ('"--repeat": 1000000000', "repeat is 1000000000; must be 1 to 1,000,000"),
        ('"--batch-size": 1e30', "--batch-size.* must be a whole number up to 2,147,483,647, got 1e\\+30"),
        ('"--nap-s": -Infinity', "--nap-s.* must be a finite number, got -inf"),
        ('"--x": ' + "[" * 20000, "nested too deeply"),
        ('"--repeat": ' + "9" * 5000, "Exceeds the limit|must be a whole number"),
    ],
)
def test_numbers_that_cannot_be_are_refused_with_their_place(
    arguments: str, words: str, toys: None, tmp_path: Path
) -> None:
    path = tmp_path / "odd.json"
    path.write_text('[{"name": "toy-nap",\n "args": {' + arguments + "}}]")
    with pytest.raises(InvalidArgument, match=words) as refused:
        resolve(str(path), TOYS)
    assert str(path) in str(refused.value)


def test_a_byte_order_mark_is_no_part_of_a_file(toys: None, tmp_path: Path) -> None:
    path = tmp_path / "bom.json"
    path.write_text('[{"name": "toy-nap"}]', encoding="utf-8-sig")
    assert [entry.key for entry in resolve(str(path), TOYS).entries] == ["toy-nap"]


@pytest.mark.parametrize("name", ["a/b", "../x", ".hidden", "a b", "x" * 81, "\u001b[31m", "naïve"])
def test_names_that_are_no_file_names_are_refused(name: str, jobs_file) -> None:
    job = {"name": name, "cmd": "./regression/polynome/pytorch/run.sh"}
    with pytest.raises(InvalidArgument, match=r"tweaked.json:\d+: name .* is used in file names"):
        resolve(jobs_file(job), TOYS)


def test_fast_is_baselines_with_less() -> None:
    (fast,) = resolve("fast", {"device": "cpu", "names": ["toy_reg"]}).entries
    (slow,) = resolve("baselines", {"device": "cpu", "names": ["toy_reg"]}).entries
    assert (fast.repeat, fast.number, slow.repeat, slow.number) == (20, 100, 20, 1000)
    assert (fast.index, slow.command) == (1, "./regression/polynome/pytorch/run.sh")


def test_some_of_a_suite(jobs_file) -> None:
    path = jobs_file({"name": "toy-nap"}, {"name": "toy-all"}, {"name": "toy-nap"})
    left = resolve(path, {**TOYS, "exclude": ["toy-nap"]})
    assert ([e.key for e in left.entries], left.size, left.entries[0].scope) == (["toy-all"], 3, "all")
    assert [e.key for e in resolve(path, {**TOYS, "names": ["toy-nap"]}).entries] == ["toy-nap", "toy-nap.2"]
    with pytest.raises(InvalidArgument, match="no job 'x' in this suite; it has toy-nap, toy-all"):
        resolve(path, {**TOYS, "names": ["x"]})
    with pytest.raises(InvalidArgument, match="--exclude leaves no job"):
        resolve(path, {**TOYS, "exclude": ["toy-nap", "toy-all"]})


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (
            {"name": "toy-nap", "args": {"--x": 1, "--numbr": 5}},
            ':5: job "toy-nap", key "--x" is not a flag of this job',
        ),
        ({"name": "toy-nap", "args": {"--repeat": "x"}}, ':5: job "toy-nap", key "--repeat" must be a whole number'),
        ({"name": "toy-nap", "args": {"--report": "$NO_SUCH"}}, "key \"--report\" '$NO_SUCH': no variable NO_SUCH"),
        ({"name": "toy-nap", "args": {"--repeat": 0}}, "repeat is 0; must be 1 to 1,000,000"),
        ({"name": "other", "cmd": "./other.sh"}, ":2: neither the name 'other' nor the command './other.sh'"),
    ],
)
def test_refusals_name_file_line_and_key(job: dict, words: str, jobs_file) -> None:
    with pytest.raises(InvalidArgument) as raised:
        resolve(jobs_file(job), TOYS)
    assert words in str(raised.value)
    assert "tweaked.json:" in str(raised.value)


def test_other_refusals(jobs_file) -> None:
    for suite, asked, words in (
        ("nothing", {}, "no suite 'nothing'.*; available: baselines, fast, 2026, a jobs file"),
        ("absent.json", {}, "absent.json"),
        (jobs_file(), {}, "the list of jobs is empty"),
        ("toy_reg", {"preset": "x"}, "unknown preset 'x'; accepted: quick, default, paper"),
        ("toy_reg", {"batch_size": 0}, "--batch-size 0: must be 1 to"),
        ("toy_reg", {"device": "abacus"}, "unknown device 'abacus'"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            resolve(suite, asked)
