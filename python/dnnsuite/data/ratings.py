# SPDX-License-Identifier: MIT
"""Implicit ratings: pairs of a user and an item, from MovieLens files or drawn by the Zipf-Mandelbrot law.

A pair is one number, user · items + item. The pairs are kept sorted, so whether one is among them is a binary search.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from .._lazy import npt, torch
from .._lazy import numpy as np
from .._lazy import pandas as pd
from ..errors import InvalidArgument, Unavailable
from ._origin import Origin, named, root_of, sha256_of

ML_20M = (138_493, 26_744)  # users and items of MovieLens-20M
ML_20M_INTERACTIONS = 19_861_770  # its 20 000 263 ratings, less the last of each user

FILES = ("ratings.csv", "ml-20m/ratings.csv", "ml-25m/ratings.csv")
_COLUMNS = ["userId", "movieId", "rating", "timestamp"]
_FEWEST_RATINGS = 20  # of a user who is kept: the preprocessing of MLPerf's recommendation benchmark (v0.5)
_REDRAWS = 4  # of a negative that turns out to be liked; after that it stays


@dataclass(frozen=True, eq=False)
class Interactions:
    """Pairs to learn from.

    Attributes:
        pairs: int64 `[P]`, ascending, without repetition: user · items + item.
        users, items: number of each; the sizes of the model's tables.
        origin: description of the data.
    """

    pairs: npt.NDArray[np.int64]
    users: int
    items: int
    origin: Origin


class Batch(NamedTuple):
    """Samples `[N]` on the device: int64 users and items, and labels (float 1 for liked, 0 for not)."""

    users: torch.Tensor
    items: torch.Tensor
    labels: torch.Tensor


def load(
    kind: str = "auto", dataroot: str | Path | None = None, interactions: int = ML_20M_INTERACTIONS, seed: int = 0
) -> Interactions:
    """Load the user's MovieLens-20M (Harper and Konstan, 2015) under `dataroot`, else pairs over tables of its size.

    Args:
        kind: `auto` takes the file if it is there; `real` refuses to draw any; `synthetic` draws them.
        dataroot: the folder with `ratings.csv`, or with MovieLens' folder in it.
        interactions: number of pairs to draw; those drawn twice count once.
        seed: seed of the synthetic pairs.

    Raises:
        InvalidArgument: an unknown kind, a dataroot that is not a folder, a damaged file, by its line.
        Unavailable: `real` was asked for and there is none.
    """
    root = root_of(kind, dataroot)
    for path in [root / name for name in FILES] if root else []:
        if path.is_file():
            return read(path)
    if kind == "real":
        raise Unavailable(
            "MovieLens-20M", f"{', '.join(FILES)} of {dataroot or 'no dataroot'}", "unpack ml-20m.zip of grouplens.org"
        )
    if interactions < 1:
        raise InvalidArgument(f"interactions must be 1 or more, got {interactions}")
    return synthetic(interactions, *ML_20M, seed)


def read(path: Path) -> Interactions:
    """Read the pairs of a `ratings.csv`: each rating is one, whatever the stars.

    As MLPerf's recommendation benchmark prepares it: users with fewer than 20 ratings are left out, users and items are
    numbered in the order in which they appear, and the latest rating of each user is kept out of training.

    Raises InvalidArgument naming the line if it is not such a file.
    """
    table = _table(path)
    ratings = table.groupby("userId")["movieId"].transform("size")
    table = table[ratings >= _FEWEST_RATINGS]
    if not len(table):
        raise InvalidArgument(f"{path}: no user has {_FEWEST_RATINGS} ratings or more")
    users, names = table["userId"].factorize()
    items, titles = table["movieId"].factorize()
    latest = table["timestamp"].groupby(users).idxmax()
    train = ~table.index.isin(latest)
    pairs = np.unique(users[train].astype(np.int64) * len(titles) + items[train])
    licence = "GroupLens: for research, not to be redistributed"
    source = named(f"MovieLens, {path.parent.name}/{path.name}", path.parent)
    origin = Origin(source, licence, len(pairs), sha256_of(path))
    return Interactions(pairs, len(names), len(titles), origin)


def _table(path: Path) -> pd.DataFrame:
    """Return the table in the file. Raises InvalidArgument naming the first line that is none of it."""
    try:
        table = pd.read_csv(path, low_memory=False)
    except (ValueError, OSError) as error:  # pandas' own errors are ValueErrors and name the line
        raise InvalidArgument(f"{path}: {str(error).strip()}") from error
    if list(table.columns) != _COLUMNS:
        raise InvalidArgument(
            f"{path}, line 1: the columns are {','.join(map(str, table.columns))}, not {','.join(_COLUMNS)}"
        )
    for column in _COLUMNS:
        values = pd.to_numeric(table[column], errors="coerce")
        wrong = values.isna()
        if wrong.any():
            row = int(wrong.to_numpy().argmax())
            raise InvalidArgument(f"{path}, line {row + 2}: {column} is {str(table[column].iloc[row])!r}, not a number")
        table[column] = values
    return table


def synthetic(interactions: int, users: int, items: int, seed: int) -> Interactions:
    """Users and items drawn independently, the r-th most frequent with a share of about 1 / (r + 1 % of all)."""
    random = np.random.Generator(np.random.Philox(key=seed & (2**64 - 1)))

    def draw(count: int) -> npt.NDArray[np.int64]:
        share = np.cumsum(1.0 / (np.arange(count) + count / 100))
        rank = np.searchsorted(share, random.random(interactions) * share[-1], side="right")
        return random.permutation(count)[rank]

    pairs = np.unique(draw(users) * items + draw(items))
    source = f"synthetic: the Zipf-Mandelbrot law, seed {seed}"
    return Interactions(pairs, users, items, Origin.of(source, "none needed", pairs))


class Sampler:
    """Batches of liked pairs and, `negatives` times as many, pairs of the same users with items they did not rate.

    Samples are drawn with replacement, on `device`. A negative that the user did rate is drawn again up to 4 times,
    without looking at the outcome, since waiting for it would stop a GPU.
    """

    def __init__(
        self, data: Interactions, batch_size: int, negatives: int = 4, seed: int = 0, device: str = "cpu"
    ) -> None:
        if negatives < 0:
            raise InvalidArgument(f"negatives must be 0 or more, got {negatives}")
        self.batch_size, self.negatives, self.items = batch_size, negatives, data.items
        self._pairs = torch.from_numpy(data.pairs).to(device)
        self._random = torch.Generator(device).manual_seed(seed)

    def batch(self) -> Batch:
        samples = len(self._pairs) * (1 + self.negatives)
        draw = self._integers(samples)
        pairs = self._pairs[draw // (1 + self.negatives)]
        users, liked = pairs // self.items, pairs % self.items
        positive = draw % (1 + self.negatives) == 0
        return Batch(users, torch.where(positive, liked, self._unrated(users)), positive.float())

    def _unrated(self, users: torch.Tensor) -> torch.Tensor:
        """Draw for each user an item that is in no pair with it."""
        items = self._integers(self.items)
        for _ in range(_REDRAWS):
            pairs = users * self.items + items
            place = torch.searchsorted(self._pairs, pairs).clamp_(max=len(self._pairs) - 1)
            items = torch.where(self._pairs[place] == pairs, self._integers(self.items), items)
        return items

    def _integers(self, below: int) -> torch.Tensor:
        size = (self.batch_size,)
        return torch.randint(below, size, generator=self._random, device=self._random.device)
