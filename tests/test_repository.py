# SPDX-License-Identifier: MIT
"""Files that forges, editors and indexes read: they parse, and name what exists."""

import json
import re
import subprocess
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parent.parent
FORMS = [path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"]


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_a_form_asks_for_what_is_needed(form):
    fields = yaml.safe_load(form.read_text(encoding="utf-8"))
    assert fields.keys() >= {"name", "description", "body"}
    asked = [field["attributes"]["label"] for field in fields["body"] if field["type"] != "markdown"]
    assert len(set(asked)) == len(asked)
    assert "Output of `dnnsuite doctor`" in asked


def test_a_release_is_made_by_the_script():
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert sum(".ci/release" in command for command in commands) == 2
    for command in commands:
        subprocess.run(["bash", "-n"], input=command, text=True, check=True)
    assert jobs["release"]["needs"] == "wheel"


def test_the_container_of_developers_builds_as_contributing_says():
    settings = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    recipe = (ROOT / ".devcontainer" / settings["build"]["dockerfile"]).read_text(encoding="utf-8")
    assert f"USER {settings['remoteUser']}" in recipe
    assert f"{re.findall('VIRTUAL_ENV=([^ ]+)', recipe)[0]}/bin/python" in json.dumps(settings)
    script = ROOT / settings["postCreateCommand"].split()[-1]
    subprocess.run(["bash", "-n", script], check=True)
    installs = re.findall(r"^pip install ('torch.*)$", script.read_text(encoding="utf-8"), re.MULTILINE)
    assert installs
    assert installs[0] in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_citation_names_the_five_systems():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited.keys() >= {"cff-version", "title", "authors", "message"}
    assert len(cited["references"]) == 5
    assert all(re.match("https://", each["repository-code"]) for each in cited["references"])
