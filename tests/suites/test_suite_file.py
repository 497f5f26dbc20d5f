# SPDX-License-Identifier: MIT
from pathlib import Path

import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.suites._suite import resolve

pytest.importorskip("tomllib")
ON_CPU = {"device": "cpu"}
SUITE = """
preset = "quick"
[[job]]
name = "toy_reg"
[[job]]
name = "gpt"
preset = "default"
options = { batch_size = 4, layers = 1 }
weight = 3
"""


def written(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text)
    return str(path)


def test_jobs_have_presets_and_options_of_their_own(tmp_path: Path) -> None:
    suite = resolve(written(tmp_path, SUITE), ON_CPU)
    reg, gpt = suite.entries
    assert (suite.name, reg.preset, gpt.preset) == ("mine", "quick", "default")
    assert (reg.repeat, reg.number) == (20, 20)
    assert (gpt.batch_size, gpt.options["layers"], gpt.options["width"]) == (4, 1, 96)
    assert gpt.changed == {"batch_size": 4, "layers": 1}
    assert (reg.weight, gpt.weight) == (1.0, 3.0)


def test_the_users_preset_is_stronger_and_options_stay(tmp_path: Path) -> None:
    _, gpt = resolve(written(tmp_path, SUITE), {**ON_CPU, "preset": "quick"}).entries
    assert (gpt.preset, gpt.batch_size, gpt.repeat) == ("quick", 4, 30)


def test_several_jobs_are_a_suite_in_their_order() -> None:
    suite = resolve("gpt, toy_reg", {**ON_CPU, "preset": "quick"})
    assert [entry.key for entry in suite.entries] == ["gpt", "toy_reg"]
    with pytest.raises(InvalidArgument, match=r"no suite 'gtp' .did you mean 'gpt'"):
        resolve("toy_reg,gtp", ON_CPU)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("preset = quick", "mine.toml cannot be read"),
        ("", "names no job"),
        ("job = 3", "names no job"),
        ("[[job]]\npreset = 'quick'", "job 1: a name is missing"),
        ("[[job]]\nnam = 'gpt'", "job 1: unknown key 'nam' .did you mean 'name'"),
        ("[[job]]\nname = 'gpt'\n[[job]]\nname = 'gpt'\nweight = 2", "job 2 is job 1 again: say it once"),
        ("[[job]]\nname = 'gpt'\nprset = 'quick'", "job 1: unknown key 'prset' .did you mean 'preset'"),
        ("jobs = []", "unknown key 'jobs'"),
        ("[[job]]\nname = 'gpt'\npreset = 'quikc'", "job 1: unknown preset 'quikc'"),
        ("[[job]]\nname = 'gtp'", "job 1: no job 'gtp'"),
        ("[[job]]\nname = 'gpt'\noptions = 3", "options are a table"),
        ("[[job]]\nname = 'gpt'\nweight = 0", "job 1: weight is 0, must be a positive number"),
        ("[[job]]\nname = 'gpt'\nweight = inf", "weight is inf, must be"),
        ("[[job]]\nname = 'gpt'\nweight = true", "weight is True, must be"),
        ("[[job]]\nname = 'gpt'\noptions = { depth = 3 }", 'job 1: job "gpt", key "--depth" is not a flag'),
    ],
)
def test_what_is_wrong_is_named_with_its_job(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=words):
        resolve(written(tmp_path, text), ON_CPU)
