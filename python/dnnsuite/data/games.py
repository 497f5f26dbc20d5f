# SPDX-License-Identifier: MIT
"""Environments for reinforcement learning, of gymnasium and of ale-py, which come with the extra `rl`."""

from __future__ import annotations

import importlib
import importlib.metadata
import math
import re
from collections import deque
from typing import Any

from .._lazy import numpy as np
from .._lazy import torch
from ..errors import InvalidArgument, Unavailable

_CART_POLE_STEPS = 200  # at most in an episode: the limit of CartPole-v0; v1 has 500


class Game:
    """An environment, or several at once that begin anew by themselves, and the scores of the episodes.

    Attributes:
        seen: observation of the environment after the last step, or of its beginning.
    """

    def __init__(self, environment: Any, seed: int) -> None:
        self._environment, self._scores, self._ended = environment, np.zeros(1), deque[float](maxlen=10)
        self.seen, _ = environment.reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, Any]:
        """Act; return the rewards, and whether episodes ended."""
        self.seen, reward, terminated, truncated, _ = self._environment.step(action)
        end = np.logical_or(terminated, truncated)
        self._scores = self._scores + reward
        self._ended.extend(self._scores[np.atleast_1d(end)].tolist())
        self._scores[np.atleast_1d(end)] = 0.0
        if end.ndim == 0 and end:
            self.seen, _ = self._environment.reset()
        return reward, end

    def metrics(self) -> dict[str, float]:
        """Return the mean score of the last 10 episodes that ended."""
        return {"episode_return": sum(self._ended) / len(self._ended)} if self._ended else {}

    def close(self) -> None:
        """End the environment."""
        self._environment.close()


def cart_pole() -> tuple[Any, str]:
    """Make the pole on a cart (Barto, Sutton and Anderson, 1983) with the limits of CartPole-v0; return it and its
    name.

    Raises Unavailable if gymnasium is not installed.
    """
    gymnasium = _extra("gymnasium")
    # v1 differs in the length of an episode alone, and v0 warns that it is old. The checker looks at every step.
    environment = gymnasium.make("CartPole-v1", max_episode_steps=_CART_POLE_STEPS, disable_env_checker=True)
    version = importlib.metadata.version("gymnasium")
    return environment, f"CartPole of gymnasium {version}, {_CART_POLE_STEPS} steps in an episode"


def pole_moved(states: torch.Tensor, moves: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the states `[N, 4]` (place, speed, angle, its speed) after 20 ms, and which poles have fallen `[N]`."""
    place, speed, angle, turning = states.unbind(-1)
    push = (2 * moves - 1).to(states.dtype) * 10.0
    cos, sin = angle.cos(), angle.sin()
    share = (push + 0.05 * turning.square() * sin) / 1.1
    turns = (9.8 * sin - cos * share) / (0.5 * (4 / 3 - 0.1 * cos.square() / 1.1))
    runs = share - 0.05 * turns * cos / 1.1
    after = [place + 0.02 * speed, speed + 0.02 * runs, angle + 0.02 * turning, turning + 0.02 * turns]
    new = torch.stack(after, -1)
    return new, (new[:, 0].abs() > 2.4) | (new[:, 2].abs() > math.radians(12))


def atari(name: str, copies: int, threads: int = 0) -> tuple[Any, str]:
    """Copies of an Atari game side by side, prepared as in Mnih et al. (Nature 2015), and their name.

    84 x 84 grey images, the larger of two frames, 4 of which are stacked; an action holds for 4 frames; rewards are -1,
    0 or 1; the loss of a life ends an episode; up to 30 frames of nothing at the beginning. The step that ends an
    episode returns the first image of the next one.

    Args:
        name: `PongNoFrameskip-v4`, `ALE/Pong-v5` or `pong`: the game is what counts.
        copies: number of games at once.
        threads: threads of the emulators; 0 lets the library choose.

    Raises:
        Unavailable: ale-py is not installed.
        InvalidArgument: it has no such game.
    """
    ale_py = _extra("ale_py")
    vector_env = importlib.import_module("ale_py.vector_env")
    game = rom_file(name)
    if game not in ale_py.roms.get_all_rom_ids():
        raise InvalidArgument(f"ale-py has no game {name!r} (looked for {game!r})")
    environment = vector_env.AtariVectorEnv(
        game,
        copies,
        num_threads=threads,
        autoreset_mode=vector_env.AutoresetMode.SAME_STEP,
        frameskip=4,
        stack_num=4,
        noop_max=30,
        episodic_life=True,
        reward_clipping=True,
        use_fire_reset=True,
    )
    return environment, f"{game} of ale-py {importlib.metadata.version('ale-py')}, one action for 4 frames"


def rom_file(name: str) -> str:
    """Return the name of a game's ROM: `ms_pacman` for `MsPacmanNoFrameskip-v4` or `ALE/MsPacman-v5`."""
    game = re.sub(r"-v\d+$", "", name.strip('"').split("/")[-1]).removesuffix("NoFrameskip")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", game).lower()


def _extra(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.replace("_", "-")
        raise Unavailable(f"the package {package} ({error})", "this Python", "pip install 'dnnsuite[rl]'") from error
