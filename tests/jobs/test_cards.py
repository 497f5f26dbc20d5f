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
from dnnsuite.jobs.cards import CATEGORIES, Card, all_cards, bibtex, cards_of, page, references

CARDS = [pytest.param(card, id=f"{card.family}-{card.job}") for card in all_cards()]
PLAIN, FUSED = ([card.job for card in all_cards() if card.family == family] for family in ("plain", "fused"))


PACKAGE = Path(jobs.__file__).parents[1]
MODELS = "".join(path.read_text() for room in ("models", "data") for path in (PACKAGE / room).glob("*.py"))


def own(names: list[str], kind: type) -> set[str]:
    """Jobs of the package itself: other tests register more."""
    return {name for name in names if jobs.get(name, kind).__module__.startswith("dnnsuite.")}


def test_every_job_has_a_card() -> None:
    assert len(set(PLAIN)) == len(PLAIN)
    assert set(FUSED) == own(jobs.names(swept=True), jobs.FusedJob)
    known = own(jobs.names(), jobs.PlainJob)
    assert set(PLAIN) == {name for name in known if jobs.get(name).family == "plain"}


@pytest.mark.parametrize("card", CARDS)
def test_a_card_agrees_with_the_job(card: Card) -> None:
    assert card.category in CATEGORIES
    assert card.data == "generated" or card.job in DATA_SETS[card.data].jobs
    assert card.deviations
    assert [change.split(":")[0].split()[0] for change in card.changes] == [str(n) for n in range(card.version, 0, -1)]
    if card.family == "plain":
        job = jobs.get(card.job)
        assert (card.unit, card.batch_size) == (job.unit, job.defaults["batch_size"])
        for name in ("lr", "learning_rate"):
            if name in job.defaults:
                assert f"lr {job.defaults[name]:g}" in card.optimizer
    else:
        fused = jobs.get(card.job, swept=True)
        assert (card.unit, card.batch_size) == (fused.unit, fused.preset("paper", "cpu")["batch_size"])


def numbers(text: str) -> set[float]:
    """Numbers in a text, with `_` or `,` between thousands or without."""
    plain = re.sub(r"(?<=\d)[_,](?=\d{3})", "", text)
    return {float(number) for number in re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", plain)}


@pytest.mark.parametrize("card", CARDS)
def test_numbers_of_a_card_are_those_of_the_code(card: Card) -> None:
    kind = jobs.PlainJob if card.family == "plain" else jobs.FusedJob
    job = jobs.get(card.job, kind)
    own = inspect.getsource(sys.modules[job.__module__])
    own += repr(job.defaults) if kind is jobs.PlainJob else repr(job.preset("paper", "cpu"))
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


def test_names_of_two_families_and_typos() -> None:
    assert [card.family for card in cards_of("dcgan")] == ["plain", "fused"]
    with pytest.raises(InvalidArgument, match=r"no job 'convnt' with a card \(did you mean 'convnet'"):
        cards_of("convnt")


def test_all_cards_on_one_page() -> None:
    sections = re.findall(r"^### ([\w-]+)", page(), re.MULTILINE)
    assert sorted(sections) == sorted(card.job for card in all_cards())
