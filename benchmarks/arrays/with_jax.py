# SPDX-License-Identifier: MIT
"""B models under JAX: a jitted step each, or one jitted step of all by vmap, in a process of their own.

Weights, batches and Adam are those of the other variants; Adam is written out, as JAX has none. Images are channels
last, as XLA likes them on a CPU, and the running statistics of batch norm, which no loss needs, are not kept.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ways
from plain import built, drawn, rates
from setting import Setting
from ways import Way
from workloads import WORKLOADS, Workload

from dnnsuite.errors import Unavailable

if TYPE_CHECKING:
    import jax

    Array = jax.Array
    Weights = dict[str, Array]
    Drop = Callable[[Array, float], Array]
    Logits = Callable[[Weights, Array, Drop], Array]

_BETA1, _BETA2, _EPS = 0.9, 0.999, 1e-8  # torch.optim.Adam's


def variant(workload: Workload, B: int, setting: Setting, together: bool) -> Way:
    """Raises Unavailable without JAX, for a workload that has no model here, on a GPU, under autocast."""
    if importlib.util.find_spec("jax") is None:
        raise Unavailable("JAX is not installed", remedy="pip install jax")
    if workload.name not in MODELS:
        raise Unavailable("no model of it is written for JAX")
    if setting.on_gpu or setting.precision != "fp32":
        raise Unavailable("JAX is compared on a CPU, in fp32")
    one_thread = "--xla_cpu_multi_thread_eigen=false" if setting.threads == 1 else ""
    environment = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": one_thread}
    return ways.concurrent(_way, [(workload.name, B, together)], setting.threads, environment)


def _way(name: str, B: int, together: bool) -> Way:
    """In the process of its own."""
    import jax

    trainer = Trainer(name, B, together)
    return ways.repeat(trainer.step, lambda: jax.block_until_ready(trainer.states))


class Trainer:
    """Trains B models of a workload; `losses` are those of the last step. `dropout` off is for tests."""

    def __init__(self, name: str, B: int, together: bool, dropout: bool = True) -> None:
        import jax
        import jax.numpy as jnp

        setting, workload = Setting(), WORKLOADS[name]
        weights = [weights_of(built(workload, seed, setting)) for seed in range(B)]
        self.batch = tuple(jnp.asarray(x.numpy()) for x in drawn(workload, setting))
        self.states: Any = list(map(start, weights, rates(B), range(B)))
        self.losses: Any = None
        step = functools.partial(train, MODELS[name], dropout)
        self._together = together
        if together:
            self.states = jax.tree.map(lambda *own: jnp.stack(own), *self.states)
            step = jax.vmap(step, in_axes=(0, *(None for _ in self.batch)))
        self._step = jax.jit(step, donate_argnums=0)

    def step(self) -> None:
        if self._together:
            self.states, self.losses = self._step(self.states, *self.batch)
            return
        found = [self._step(state, *self.batch) for state in self.states]
        self.states, self.losses = [state for state, _ in found], [loss for _, loss in found]


def weights_of(model: Any) -> Weights:
    """Parameters by torch's names; filters of convolutions as [h, w, in, out]."""
    import jax.numpy as jnp

    found = {}
    for name, parameter in model.named_parameters():
        value = parameter.detach().numpy()
        found[name] = jnp.array(value.transpose(2, 3, 1, 0) if value.ndim == 4 else value)
    return found


def start(weights: Weights, rate: float, seed: int) -> dict[str, Any]:
    """All that a step of a model changes or reads, but the batch."""
    import jax
    import jax.numpy as jnp

    return {
        "weights": weights,
        "mean": jax.tree.map(jnp.zeros_like, weights),
        "square": jax.tree.map(jnp.zeros_like, weights),
        "count": jnp.zeros(()),
        "rate": jnp.float32(rate),
        "key": jax.random.key(seed),
    }


def train(logits: Logits, dropout: bool, state: dict[str, Any], x: Array, y: Array) -> tuple[dict[str, Any], Array]:
    """One step of one model: its state after it, and its loss."""
    import jax
    import jax.numpy as jnp

    key, own = jax.random.split(state["key"])
    loss, gradient = jax.value_and_grad(cross_entropy, argnums=1)(
        logits, state["weights"], x, y, dropper(own) if dropout else lambda x, rate: x
    )
    count = state["count"] + 1
    mean = jax.tree.map(lambda m, g: _BETA1 * m + (1 - _BETA1) * g, state["mean"], gradient)
    square = jax.tree.map(lambda v, g: _BETA2 * v + (1 - _BETA2) * g * g, state["square"], gradient)
    first, second = 1 - _BETA1**count, 1 - _BETA2**count

    def updated(w: Array, m: Array, v: Array) -> Array:
        return w - state["rate"] / first * m / (jnp.sqrt(v / second) + _EPS)

    weights = jax.tree.map(updated, state["weights"], mean, square)
    after = {"weights": weights, "mean": mean, "square": square, "count": count, "rate": state["rate"], "key": key}
    return after, loss


def cross_entropy(logits: Logits, weights: Weights, x: Array, y: Array, drop: Drop) -> Array:
    import jax
    import jax.numpy as jnp

    chances = jax.nn.log_softmax(logits(weights, x, drop))
    return -jnp.take_along_axis(chances, y[:, None], 1).mean()


def dropper(key: Array) -> Drop:
    """Dropout whose calls each have numbers of their own."""
    import jax
    import jax.numpy as jnp

    keys = iter(jax.random.split(key, 16))

    def drop(x: Array, rate: float) -> Array:
        kept = jax.random.bernoulli(next(keys), 1 - rate, x.shape)
        return jnp.where(kept, x / (1 - rate), 0.0)

    return drop


def _linear(weights: Weights, name: str, x: Array) -> Array:
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def _mlp(weights: Weights, x: Array, drop: Drop) -> Array:
    import jax

    for layer in range(2):
        x = jax.nn.relu(_linear(weights, f"layers.{layer}", x))
    return _linear(weights, "layers.2", x)


def _cnn(weights: Weights, x: Array, drop: Drop) -> Array:
    import jax

    x = x.transpose(0, 2, 3, 1)
    for layer in ("features.0", "features.3"):
        x = jax.lax.conv_general_dilated(
            x, weights[f"{layer}.weight"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + weights[f"{layer}.bias"])
        n, h, w, c = x.shape
        x = x.reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))
    x = x.transpose(0, 3, 1, 2).reshape(x.shape[0], -1)
    return _linear(weights, "head.1", drop(x, 0.25))


def _gru(weights: Weights, x: Array, drop: Drop) -> Array:
    import jax
    import jax.numpy as jnp

    x = x.swapaxes(0, 1)
    for layer in range(2):
        w_ih, w_hh, b_ih, b_hh = (
            weights[f"gru.{name}_l{layer}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )

        def step(h: Array, given: Array, w_hh: Array = w_hh, b_hh: Array = b_hh) -> tuple[Array, Array]:
            (xr, xz, xn), (hr, hz, hn) = jnp.split(given, 3, -1), jnp.split(h @ w_hh.T + b_hh, 3, -1)
            r, z = jax.nn.sigmoid(xr + hr), jax.nn.sigmoid(xz + hz)
            h = (1 - z) * jnp.tanh(xn + r * hn) + z * h
            return h, h

        _, x = jax.lax.scan(step, jnp.zeros((x.shape[1], w_hh.shape[1])), x @ w_ih.T + b_ih)
    return _linear(weights, "head", x[-1])


def _batch_norm(weights: Weights, name: str, x: Array) -> Array:
    import jax

    scale = jax.lax.rsqrt(x.var(0) + 1e-5) * weights[f"{name}.weight"]
    return (x - x.mean(0)) * scale + weights[f"{name}.bias"]


def _tabular_resnet(weights: Weights, x: Array, drop: Drop) -> Array:
    import jax

    x = _linear(weights, "first", x)
    for block in (f"blocks.{number}" for number in range(3)):
        hidden = jax.nn.relu(_linear(weights, f"{block}.first", _batch_norm(weights, f"{block}.norm", x)))
        x = x + drop(_linear(weights, f"{block}.second", drop(hidden, 0.1)), 0.1)
    return _linear(weights, "head", jax.nn.relu(_batch_norm(weights, "norm", x)))


MODELS: dict[str, Logits] = {"mlp_s": _mlp, "mlp_m": _mlp, "cnn": _cnn, "gru": _gru, "tabular_resnet": _tabular_resnet}
