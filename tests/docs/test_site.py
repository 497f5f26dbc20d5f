# SPDX-License-Identifier: MIT
"""The site: pages made from code, links between pages of all kinds, navigation."""

import os
import re

import pytest
import typer

import command_pages
import docstring_markdown
import job_pages
import member_tables
import notebook_pages
import page_links
import pages
import torch_page
from dnnsuite import nn
from dnnsuite._torch import NAMES
from dnnsuite.cli.app import app
from dnnsuite.jobs.cards import all_cards
from report_runs import SEED

MADE = {
    *page_links.copied().values(),
    "jobs/index.md",
    "reference/cli/index.md",
    "internals/torch_names.md",
    *(f"jobs/{name}.md" for name in job_pages.pages()),
    *(f"reference/cli/{name}.md" for name in command_pages.pages()),
}


def test_every_command_has_a_page_with_its_options():
    commands = typer.main.get_command(app).commands
    made = command_pages.pages()
    assert made.keys() == {name for name, command in commands.items() if not command.hidden}
    for flag in ("--vary", "--resume", "KEY=V1,V2,..."):
        assert flag in made["train"]
    assert "## dnnsuite pin run" in made["pin"]
    assert all(f"[{name}]({name}.md)" in command_pages.index(made) for name in made)


def test_text_is_shown_as_it_is():
    assert command_pages.escaped("a|b <c> `x|*` *d*") == r"a\|b \<c\> `x|*` \*d\*"


def test_every_job_has_a_page_with_what_it_refers_to():
    made = job_pages.pages()
    for card in all_cards():
        job = card["job"]
        assert card["deviations"][0] in made[job]
        assert made[job].count("](https://") >= len(card["references"])
        assert f"[{job}]({job}.md) | {card['task']} |" in job_pages.index()


def test_every_private_name_of_torch_is_listed():
    text = torch_page.page()
    assert all(name in text for group in NAMES.values() for name in group.names)


def test_the_reference_names_every_layer_and_function_for_arrays():
    text = member_tables.with_tables("# nn\n\n::: dnnsuite.nn\n\n::: dnnsuite.nn.functional\n")
    named = set(re.findall(r"^\| `(\w+)` \| \S", text, re.MULTILINE))
    exported = {*nn.__all__, *nn.functional.__all__} - {"functional"}
    assert named == exported
    assert "::: dnnsuite.nn.functional" in text


@pytest.mark.parametrize(
    ("link", "source", "page", "expected"),
    [
        ("../../examples/spirals.py", "docs/measure/workflow.md", "measure/workflow.md", "../examples/spirals.md"),
        ("../CONTRIBUTING.md#test", "docs/index.md", "index.md", "contributing.md#test"),
        ("docs/see/profile.md", "CHANGELOG.md", "changelog.md", "see/profile.md"),
        ("../../benchmarks/results/", "docs/reproduce/hfta.md", "reproduce/hfta.md", "../benchmarks.md"),
        ("fuse.md", "docs/multiply/index.md", "multiply/index.md", "fuse.md"),
        ("https://arxiv.org/abs/2102.02344", "README.md", "index.md", "https://arxiv.org/abs/2102.02344"),
        ("nowhere.txt", "CONTRIBUTING.md", "contributing.md", "nowhere.txt"),
    ],
)
def test_links_lead_from_page_to_page(link, source, page, expected):
    assert page_links.relinked(f"see [it]({link}), so", source, page) == f"see [it]({expected}), so"


SITE = MADE | {path.relative_to(pages.DOCS).as_posix() for path in pages.DOCS.rglob("*.*")}
SOURCES = {
    **{
        f"docs/{path.relative_to(pages.DOCS).as_posix()}": path.relative_to(pages.DOCS).as_posix()
        for path in pages.PAGES[1:]
    },
    **{source: page for source, page in page_links.copied().items() if source.endswith(".md")},
}


@pytest.mark.parametrize("source", SOURCES)
def test_links_lead_to_pages_of_the_site(source):
    page = SOURCES[source]
    markdown = page_links.relinked(page_links.text_of(source), source, page)
    for target in pages.links_in(markdown):
        assert os.path.normpath(os.path.join(os.path.dirname(page), target)) in SITE, target


MORE = [
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    *(f"{room}/README.md" for room in ("benchmarks", "docker", "examples", "notebooks")),
]


@pytest.mark.parametrize("page", [*pages.PAGES, *(pages.ROOT / name for name in MORE)], ids=pages.name_of)
def test_links_lead_somewhere(page):
    for target in pages.links(page):
        path = (page.parent / target).resolve()
        inside = path.relative_to(pages.DOCS).as_posix() if path.is_relative_to(pages.DOCS) else None
        assert path.exists() or inside in MADE, target


def test_examples_of_docstrings_are_code():
    text = "A sum.\n\n>>> 1 + 1\n2\n\n>>> [3]\n[3]\n\nSee :class:`~house.Sum`."
    fenced = "A sum.\n\n```pycon\n>>> 1 + 1\n2\n\n>>> [3]\n[3]\n```\n\nSee `house.Sum`."
    assert docstring_markdown.markdown(text) == fenced
    section = "A sum.\n\nExamples:\n    >>> 1 + 1\n    2"
    assert docstring_markdown.markdown(section) == section


def test_every_example_is_listed():
    text = (pages.ROOT / "examples/README.md").read_text(encoding="utf-8")
    names = [path.name for path in (pages.ROOT / "examples").iterdir() if path.suffix in (".py", ".sh")]
    assert all(f"[{name}]({name})" in text for name in names)


def test_a_notebook_is_shown_with_its_code_and_what_its_cells_show():
    nbformat = pytest.importorskip("nbformat", reason="pip install '.[docs]'")
    v4 = nbformat.v4
    cells = [
        v4.new_markdown_cell("# A curve"),
        v4.new_code_cell(
            "draw()",
            outputs=[
                v4.new_output("stream", name="stdout", text="\x1b[1mthree\x1b[0m runs\n"),
                v4.new_output("stream", name="stderr", text="a warning"),
                v4.new_output("display_data", {"image/svg+xml": "<svg/>", "text/plain": "<Figure>"}),
                v4.new_output("execute_result", {"text/html": "<table>\n\n</table>"}, execution_count=1),
                v4.new_output("execute_result", {"text/plain": "7"}, execution_count=1),
            ],
        ),
    ]
    page = notebook_pages.page(v4.new_notebook(cells=cells), "01_curve")
    assert page.figures == {"01_curve-1.svg": b"<svg/>"}
    assert page.markdown == (
        "# A curve\n\n```python\ndraw()\n```\n\n```text\nthree runs\n```\n\n![A curve](01_curve-1.svg)\n\n"
        '<div class="output">\n<table>\n</table>\n</div>\n\n```text\n7\n```\n'
    )


def test_files_of_the_map_exist():
    text = (pages.DOCS / "internals/architecture.md").read_text(encoding="utf-8")
    for path in re.findall(r"`([^`\s]+/[^`\s]*)`", text.split("## Where things are")[1]):
        roots = (pages.ROOT, pages.ROOT / "python/dnnsuite")
        assert any((root / path).exists() for root in roots), path


def test_worked_numbers_are_those_that_the_tests_use():
    hfta, mila = ((pages.DOCS / f"reproduce/{name}.md").read_text(encoding="utf-8") for name in ("hfta", "mila"))
    for count in (35_732_752, 2_769_168, 3_576_704 + 2_765_568, 1_528_106, 4_214_842, 3_465_305, 3_527_629, 11_181_642):
        assert f"{count:,}" in hfta
    for job, (result, sd) in SEED.items():
        assert re.search(rf"^\| {job} \| [\d.]+ \| {result:f} \| {sd:f} \|", mila, re.MULTILINE)
