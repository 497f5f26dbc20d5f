# SPDX-License-Identifier: MIT
"""The environments are the ones that the original suite played; where they are missing, it says what to install."""

import sys

import numpy as np
import pytest

from dnnsuite.data import games
from dnnsuite.errors import InvalidArgument, Unavailable


def test_cart_pole_ends_after_200_steps():
    environment, source = games.cart_pole()
    observation, _ = environment.reset(seed=0)
    assert observation.shape == (4,)
    assert observation.dtype == np.float32
    assert environment.action_space.n == 2
    # Leaning towards where the pole falls keeps it up long enough to see the limit.
    for step in range(1, 201):
        angle, speed = observation[2], observation[3]
        observation, _, terminated, truncated, _ = environment.step(int(angle + speed > 0))
        assert not terminated
        assert truncated == (step == 200)
    assert source.startswith("CartPole of gymnasium ")
    environment.close()


class Ladder:
    """Pays 1 a step; `copies` of it end with every third one."""

    def __init__(self, copies):
        self.shape, self.steps, self.resets, self.closed = (copies,) if copies else (), 0, 0, False

    def reset(self, seed=None):
        self.resets += 1
        return "start", {}

    def step(self, action):
        self.steps += 1
        over = np.full(self.shape, self.steps % 3 == 0)[()]
        return "on", np.ones(self.shape)[()], over, np.zeros_like(over), {}

    def close(self):
        self.closed = True


@pytest.mark.parametrize("copies", [0, 2])
def test_scores_of_a_game_are_those_of_its_last_episodes(copies):
    ladder = Ladder(copies)
    game = games.Game(ladder, 0)
    assert game.metrics() == {}
    ends = [np.all(game.step(1)[1]) for _ in range(7)]
    assert ends == [False, False, True, False, False, True, False]
    assert game.metrics() == {"episode_return": 3.0}
    assert ladder.resets == (1 if copies else 3)  # one of several begins anew by itself
    game.close()
    assert ladder.closed


def test_atari_is_prepared_as_for_nature():
    environment, source = games.atari("PongNoFrameskip-v4", 2)
    images, _ = environment.reset(seed=0)
    assert (images.shape, images.dtype) == ((2, 4, 84, 84), np.uint8)
    assert environment.single_action_space.n == 6
    assert source.startswith("pong of ale-py ")
    rewards, ended = [], 0
    for _ in range(1100):
        _, reward, terminated, truncated, _ = environment.step(np.zeros(2, dtype=np.int64))
        rewards.append(reward)
        ended += int((terminated | truncated).sum())
    assert set(np.unique(rewards)) <= {-1.0, 0.0, 1.0}
    assert np.sum(rewards) < -20  # one who does nothing loses
    assert ended >= 2
    environment.close()


@pytest.mark.parametrize(
    ("name", "rom"),
    [
        ("PongNoFrameskip-v4", "pong"),
        ('"PongNoFrameskip-v4"', "pong"),
        ("ALE/MsPacman-v5", "ms_pacman"),
        ("pong", "pong"),
        ("BreakoutNoFrameskip-v4", "breakout"),
        ("Pong-v0", "pong"),
    ],
)
def test_names_of_games(name, rom):
    assert games.rom_file(name) == rom


def test_no_such_game():
    with pytest.raises(InvalidArgument, match=r"no game 'ALE/Chess-v5' .*'chess'"):
        games.atari("ALE/Chess-v5", 1)


@pytest.mark.parametrize(
    ("module", "make"), [("gymnasium", games.cart_pole), ("ale_py", lambda: games.atari("pong", 1))]
)
def test_says_how_to_install_them(monkeypatch, module, make):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(Unavailable, match=r"pip install 'dnnsuite\[rl\]'"):
        make()
