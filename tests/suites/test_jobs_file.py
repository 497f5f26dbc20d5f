# SPDX-License-Identifier: MIT
"""Files as mila-iqia/training has them, and files that are wrong."""

from pathlib import Path

import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.suites.jobs_file import expand, read_jobs_file

GOOD = """\
[
  {
    "name": "toy_reg",
    "cmd": "./regression/polynome/pytorch/run.sh",
    "args":{
      "--repeat": 20,
      "--report": "$OUTPUT_DIRECTORY/$JOB_FILE",
      "--cuda": ""
    },
    "cgroup": "student"
  },
  {
    "name": "wlm",
    "cmd": "./natural_language_processing/word_language_model/pytorch/run.sh",
    "args": {
      "--model": ["RNN_TANH", "GRU"],
      "--nhid": [200, 656],
      "${DATA_DIRECTORY}/x": "",
      "--workers": 8,
    },
    "cgroup": "all"
  }
]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "tweaked.json"
    path.write_text(text)
    return path


def test_lists_fan_out_and_stray_commas_are_overlooked(tmp_path: Path) -> None:
    first, *others = read_jobs_file(write(tmp_path, GOOD))
    assert (first.index, first.name, first.scope) == (1, "toy_reg", "student")
    assert first.command == "./regression/polynome/pytorch/run.sh"
    assert first.arguments == {"--repeat": 20, "--report": "$OUTPUT_DIRECTORY/$JOB_FILE", "--cuda": ""}
    assert first.at("--report") == f"{tmp_path}/tweaked.json:7"
    assert [(d.index, d.arguments["--model"], d.arguments["--nhid"]) for d in others] == [
        (2, model, nhid) for model in ("RNN_TANH", "GRU") for nhid in (200, 656)
    ]
    assert all(d.scope == "all" and d.arguments["${DATA_DIRECTORY}/x"] == "" for d in others)


def test_a_comma_in_a_text_stays(tmp_path: Path) -> None:
    (only,) = read_jobs_file(write(tmp_path, '[{"name": "a", "args": {"--x": "1,}", "--y": "\\"," ,},},]'))
    assert only.arguments == {"--x": "1,}", "--y": '",'}


def test_the_least_there_can_be(tmp_path: Path) -> None:
    (only,) = read_jobs_file(write(tmp_path, '[{"name": "vae"}]'))
    assert (only.name, only.command, only.arguments, only.scope) == ("vae", "", {}, "")
    assert read_jobs_file(write(tmp_path, "[]")) == []


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "the file is empty"),
        ('{"name": "a"}', 1, "a jobs file is a list"),
        ('[\n{"name": "a"}\n{"name": "b"}]', 3, 'expected "," or "]" after a job'),
        ('[\n{"name": "a",\n "args": {"--x" 1}}]', 3, "':' delimiter"),
        ('[\n{"name": "a"},\n', 3, "Expecting value"),
        ('[\n{"name": "a"}]\n{}', 3, "something follows the list"),
        ("[\n\n3]", 3, "a job is an object"),
        ('[{"name": "a"},\n\n{"cmd": "x"}]', 3, 'key "name" is missing'),
        ('[{"name": "a",\n"cmd": 3}]', 2, 'key "cmd" is not a text'),
        ('[{"name": "a",\n"cgroups": "all"}]', 2, 'unknown key "cgroups"; a job has name, cmd, args, cgroup'),
        ('[{"name": "a",\n"cgroup": "teacher"}]', 2, 'key "cgroup" is "teacher"; accepted: student, all'),
        ('[{"name": "a",\n"args": []}]', 2, 'key "args" is not an object'),
        ('[{"name": "a", "args": {\n"--x": 1,\n"--y": {}}}]', 3, 'key "--y" is neither a value nor a list'),
        ('[{"name": "a", "args": {\n"--y": [1, null]}}]', 2, 'key "--y" is neither'),
        ('[{"name": "a", "args": {\n"--y": []}}]', 2, 'key "--y" is neither'),
        ('[{"name": "a", "args": {\n"--y": NaN}}]', 2, 'key "--y" is neither'),
        ('[{"name": "a", "args": {"--x": 1,\n"--y": 2,\n"--x": 3}}]', 3, 'key "--x" occurs twice'),
    ],
)
def test_errors_name_file_line_and_key(text: str, line: int, words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument) as raised:
        read_jobs_file(write(tmp_path, text))
    assert str(raised.value).startswith(f"{tmp_path}/tweaked.json:{line}: ")
    assert words in str(raised.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"absent\.json"):
        read_jobs_file(tmp_path / "absent.json")
    (tmp_path / "tweaked.json").write_bytes(b"[\xff]")
    with pytest.raises(InvalidArgument, match=r"tweaked\.json"):
        read_jobs_file(tmp_path / "tweaked.json")


class Failed(Exception):
    pass


def fail(problem: str) -> None:
    raise Failed(problem)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$A/${B}/c", "x y/2/c"),
        ('"PongNoFrameskip-v4"', "PongNoFrameskip-v4"),
        ("256 256  128 64", "256 256 128 64"),
        ("", ""),
        ("a; rm -rf $A", "a; rm -rf x y"),
        ("100%$", "100%$"),
    ],
)
def test_variables_and_quotes(text: str, expanded: str) -> None:
    assert expand(text, {"A": "x y", "B": "2"}, fail) == expanded


@pytest.mark.parametrize(
    ("text", "words"), [("$(id)", "needs a shell"), ("`id`", "needs a shell"), ("$C", "no variable C"), ('"', "quot")]
)
def test_what_is_not_replaced(text: str, words: str) -> None:
    with pytest.raises(Failed, match=words):
        expand(text, {}, fail)
