# SPDX-License-Identifier: MIT
"""Cards and code say the same."""

import inspect
import re
import sys
from pathlib import Path

import pytest

from dnnsuite import jobs
from dnnsuite.data.catalogue import DATA_SETS
from dnnsuite.errors import InvalidArgument
from dnnsuite.jobs.cards import CATEGORIES, Card, all_cards, bibtex, card_of, page, references
from dnnsuite.suites import SUITES

CARDS = [pytest.param(card, id=card.job) for card in all_cards()]
PACKAGE = Path(jobs.__file__).parents[1]
MODELS = "".join(path.read_text() for room in ("models", "data") for path in (PACKAGE / room).glob("*.py"))


def test_every_job_has_one_card() -> None:
    own = {name for name in jobs.names() if jobs.get(name).__module__.startswith("dnnsuite.")}  # other tests make more
    assert sorted(card.job for card in all_cards()) == sorted(own)


@pytest.mark.parametrize("card", CARDS)
def test_a_card_agrees_with_the_job(card: Card) -> None:
    assert card.category in CATEGORIES
    assert card.data == "generated" or card.job in DATA_SETS[card.data].jobs
    assert card.deviations
    assert [change.split(":")[0].split()[0] for change in card.changes] == [str(n) for n in range(card.version, 0, -1)]
    job = jobs.get(card.job)
    original = job.settings("default") if card.job in SUITES["baselines"] else job.settings("paper")
    assert card.batch_size == original["batch_size"]
    assert f"\n- unit: {job.unit}\n- batch size: {original['batch_size']}\n" in card.shown()
    for name in ("lr", "learning_rate"):
        if name in original:
            assert f"lr {original[name]:g}" in card.optimizer


def numbers(text: str) -> set[float]:
    """Numbers in a text, with `_` or `,` between thousands or without."""
    plain = re.sub(r"(?<=\d)[_,](?=\d{3})", "", text)
    return {float(number) for number in re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", plain)}


@pytest.mark.parametrize("card", CARDS)
def test_numbers_of_a_card_are_those_of_the_code(card: Card) -> None:
    job = jobs.get(card.job)
    own = inspect.getsource(sys.modules[job.__module__]) + repr(job.defaults) + repr(job.settings("paper"))
    assert numbers(card.optimizer) <= numbers(own)
    assert numbers(card.model) <= numbers(own + MODELS)


@pytest.mark.parametrize("card", CARDS)
def test_references_are_whole(card: Card) -> None:
    for key in card.references:
        fields = references()[key]
        assert all(fields[name] for name in ("title", "author", "year", "url"))
        assert fields["url"].startswith("https://")
        assert re.fullmatch(r"(19|20)\d\d", fields["year"])


def test_every_reference_is_used_and_printed() -> None:
    used = {key for card in all_cards() for key in card.references}
    assert used == references().keys()
    assert len(re.findall(r"^@", bibtex(used), re.MULTILINE)) == len(used)
    assert bibtex(["he2016"]).startswith("@inproceedings{he2016,")


def test_a_typo() -> None:
    with pytest.raises(InvalidArgument, match=r"no job 'convnt' with a card \(did you mean 'convnet'"):
        card_of("convnt")


def test_all_cards_on_one_page() -> None:
    sections = re.findall(r"^### ([\w-]+)", page(), re.MULTILINE)
    assert sorted(sections) == sorted(card.job for card in all_cards())
