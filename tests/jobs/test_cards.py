# SPDX-License-Identifier: MIT
"""Cards say what the jobs declare."""

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from dnnsuite import jobs
from dnnsuite.data.catalogue import DATA_SETS
from dnnsuite.errors import InvalidArgument
from dnnsuite.jobs.cards import CATEGORIES, all_cards, bibtex, card_of, page, references, shown, version_of

CARDS = [pytest.param(card, id=card["job"]) for card in all_cards()]
PACKAGE = Path(jobs.__file__).parents[1]
MODELS = "".join(path.read_text() for room in ("models", "data") for path in (PACKAGE / room).glob("*.py"))


def test_every_job_has_a_card() -> None:
    own = {name for name in jobs.names() if jobs.get(name).__module__.startswith("dnnsuite.")}  # other tests make more
    assert {card["job"] for card in all_cards()} >= own


@pytest.mark.parametrize("card", CARDS)
def test_a_card_is_whole(card: dict[str, Any]) -> None:
    assert card["category"] in CATEGORIES
    assert card["data"] == "generated" or card["job"] in DATA_SETS[card["data"]].jobs
    assert card["deviations"]
    assert card["references"]
    said = shown(card)
    assert f"\n- unit: {card['unit']}\n- batch size: {card['batch_size']}\n- optimizer: " in said
    assert all(f"{each}\n" in said for each in (*card["deviations"], *card["changes"]))


def test_a_card_says_the_optimizer_the_schedule_and_the_target() -> None:
    assert card_of("gpt")["optimizer"] == (
        "AdamW (lr 0.004, betas (0.9, 0.95), weight_decay 0.05), AdamW (lr 0.004, betas (0.9, 0.95), "
        "weight_decay 0.0), 10% warm-up, then constant to 30% of the steps, then a linear fall to 0, norm clipped at 1"
    )
    assert card_of("bert")["optimizer"].startswith("Adadelta (lr 1.0), StepLR (step_size 10, gamma 0.7)")
    assert card_of("loader")["optimizer"] == "none"
    assert card_of("conformer")["metric"] == "wrong symbols ≤ 0.1"
    assert card_of("vae")["metric"] == "test loss per image"


def test_versions_count_changes() -> None:
    assert version_of("toy_reg") == 1
    assert version_of("dcgan") == 3
    assert version_of("nobody's") is None
    assert "\n- 3: one job for `run`" in shown(card_of("dcgan"))


def numbers(text: str) -> set[float]:
    """Numbers in a text, with `_` or `,` between thousands or without."""
    plain = re.sub(r"(?<=\d)[_,](?=\d{3})", "", text)
    return {float(number) for number in re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", plain)}


@pytest.mark.parametrize("card", CARDS)
def test_numbers_of_a_model_are_those_of_the_code(card: dict[str, Any]) -> None:
    job = jobs.get(card["job"])
    source = inspect.getsource(sys.modules[job.__module__]).replace(f'"{card["model"]}"', "")
    assert numbers(card["model"]) <= numbers(source + repr(job.defaults) + repr(job.settings("paper")) + MODELS)


@pytest.mark.parametrize("card", CARDS)
def test_references_are_whole(card: dict[str, Any]) -> None:
    for key in card["references"]:
        fields = references()[key]
        assert all(fields[name] for name in ("title", "author", "year", "url"))
        assert fields["url"].startswith("https://")
        assert re.fullmatch(r"(19|20)\d\d", fields["year"])


def test_every_reference_is_used_and_printed() -> None:
    used = {key for card in all_cards() for key in card["references"]}
    assert used == references().keys()
    assert len(re.findall(r"^@", bibtex(used), re.MULTILINE)) == len(used)
    assert bibtex(["he2016"]).startswith("@inproceedings{he2016,")


def test_a_typo() -> None:
    with pytest.raises(InvalidArgument, match=r"no job 'convnt' with a card \(did you mean 'convnet'"):
        card_of("convnt")


def test_all_cards_on_one_page() -> None:
    sections = re.findall(r"^### ([\w-]+)", page(), re.MULTILINE)
    assert sorted(sections) == sorted(card["job"] for card in all_cards())
