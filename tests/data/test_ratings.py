# SPDX-License-Identifier: MIT
"""Pairs of users and items: MovieLens' file, whole and damaged, the synthetic ones, and what is drawn of them."""

import numpy as np
import pytest
import torch

from dnnsuite.data import ratings
from dnnsuite.errors import InvalidArgument, Unavailable

HEADER = "userId,movieId,rating,timestamp\n"


def write(folder, rows, header=HEADER):
    (folder / "ratings.csv").write_text(header + "".join(f"{','.join(map(str, row))}\n" for row in rows))
    return folder


def rows(user, movies, start=1000):
    return [(user, movie, 3.5, start + k) for k, movie in enumerate(movies)]


def test_movielens(tmp_path):
    movies = list(range(100, 121))  # 21 of them
    table = rows(7, movies) + rows(5, movies[:19]) + rows(3, movies[::-1])
    data = ratings.load("auto", write(tmp_path, table))
    assert (data.users, data.items) == (2, 21)  # user 5 has too few
    assert data.origin.source == f"MovieLens, {tmp_path.name}/ratings.csv"
    assert data.origin.count == len(data.pairs) == 40
    # Users 7 and 3 are numbers 0 and 1; each loses the last: movie 120, number 20, and movie 100, number 0.
    expected = {(0, item) for item in range(20)} | {(1, item) for item in range(1, 21)}
    assert {divmod(int(pair), 21) for pair in data.pairs} == expected
    (tmp_path / "ml-20m").mkdir()
    (tmp_path / "ratings.csv").rename(tmp_path / "ml-20m" / "ratings.csv")
    assert np.array_equal(ratings.load("real", tmp_path).pairs, data.pairs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("userId,movieId\n1,2\n", r"ratings.csv, line 1: the columns are userId,movieId, not userId,movieId,rat"),
        (HEADER + "1,2,3.0,4\n1,two,3.0,4\n", r"ratings.csv, line 3: movieId is 'two', not a number"),
        (HEADER + "1,2,3.0,4\n1,2,3.0\n", r"ratings.csv, line 3: timestamp is 'nan', not a number"),
        (HEADER + "1,2,3.0,4\n1,2,3,4,5,6\n", r"ratings.csv: .*line 3"),
        ("", r"ratings.csv: No columns"),
        (HEADER + "1,2,3.0,4\n", "no user has 20 ratings"),
    ],
)
def test_damaged(tmp_path, text, message):
    (tmp_path / "ratings.csv").write_text(text)
    with pytest.raises(InvalidArgument, match=message):
        ratings.load("auto", tmp_path)


def test_without_movielens(tmp_path):
    assert ratings.load("auto", tmp_path, interactions=100).origin.source.startswith("synthetic")
    with pytest.raises(
        Unavailable, match=r"MovieLens-20M \(looked in ratings\.csv, ml-20m/ratings\.csv, .*ml-20m\.zip"
    ):
        ratings.load("real", tmp_path)
    with pytest.raises(Unavailable, match="of no dataroot"):
        ratings.load("real")
    with pytest.raises(InvalidArgument, match="is not a folder"):
        ratings.load("auto", tmp_path / "absent")
    with pytest.raises(InvalidArgument, match="interactions must be 1 or more, got 0"):
        ratings.load(interactions=0)


def test_synthetic_pairs_follow_the_law_and_the_seed():
    data = ratings.synthetic(10_000, 1000, 2000, seed=1)
    assert np.all(np.diff(data.pairs) > 0)
    assert 9_000 < len(data.pairs) <= 10_000  # those drawn twice count once
    for numbers, count in ((data.pairs // 2000, 1000), (data.pairs % 2000, 2000)):
        found = np.sort(np.bincount(numbers, minlength=count))[::-1]
        assert len(found) == count
        share = 1 / (np.arange(count) + count / 100)
        head = slice(0, count // 10)
        assert found[head].sum() / found.sum() == pytest.approx(share[head].sum() / share.sum(), abs=0.05)
    assert ratings.synthetic(1000, 1000, 2000, 1).origin.sha256 == ratings.synthetic(1000, 1000, 2000, 1).origin.sha256
    assert ratings.synthetic(1000, 1000, 2000, 1).origin.sha256 != ratings.synthetic(1000, 1000, 2000, 2).origin.sha256


def test_default_tables_are_those_of_movielens_20m():
    data = ratings.load(interactions=1000)
    assert (data.users, data.items) == (138_493, 26_744)


def test_one_liked_pair_to_four_that_are_not():
    data = ratings.synthetic(3000, 300, 400, seed=0)
    users, items, labels = ratings.Sampler(data, batch_size=20_000, seed=3).batch()
    liked = np.isin((users * 400 + items).numpy(), data.pairs)
    assert np.all(liked[labels.numpy() == 1])
    assert liked[labels.numpy() == 0].mean() < 0.001  # of all pairs 2 % are
    assert float(labels.mean()) == pytest.approx(0.2, abs=0.02)
    # Each pair is as likely as any other.
    drawn = np.unique((users * 400 + items).numpy()[labels.numpy() == 1])
    assert len(drawn) > 0.6 * len(data.pairs)


def test_same_seed_same_batches():
    data = ratings.synthetic(3000, 50, 400, seed=0)
    one, other = ratings.Sampler(data, 64, seed=3), ratings.Sampler(data, 64, seed=3)
    for _ in range(2):
        assert all(torch.equal(a, b) for a, b in zip(one.batch(), other.batch(), strict=True))
    assert not torch.equal(one.batch().items, ratings.Sampler(data, 64, seed=4).batch().items)
    with pytest.raises(InvalidArgument, match="negatives must be 0 or more"):
        ratings.Sampler(data, 64, negatives=-1)
