# SPDX-License-Identifier: MIT
"""The suites that come with the package, and what mila-iqia/training (2019) calls its jobs and counts.

Its scripts stand for jobs, its units differ from ours in three of them, and its `fast.json` asks for less.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# In the order of mila-iqia/training's baselines.json: two toys first, which show that everything is set up.
_BASELINES = (
    "toy_reg", "toy_lstm", "vae", "loader", "reso", "translator", "wlm", "wlmfp16", "cart", "atari", "ssd",
    "fast_style", "dcgan", "convnet", "convnet_fp16", "recom", "convnet_distributed", "convnet_distributed_fp16",
    "dcgan_all",
)  # fmt: skip
_TODAY = (
    "gpt", "lora", "moe", "mamba", "dpo", "grpo", "vit", "convnext", "dino", "dit", "unet", "detector", "conformer",
    "molecules", "rgat", "dcnv2", "ppo",
)  # fmt: skip
SUITES: Mapping[str, tuple[str, ...]] = {"baselines": _BASELINES, "fast": _BASELINES, "2026": _TODAY}

# Where its fast.json asks for less than baselines.json, which each job's own defaults are.
FAST: Mapping[str, Mapping[str, Any]] = {
    "toy_reg": {"number": 100},
    "toy_lstm": {"repeat": 10},
    "vae": {"repeat": 50},
    "loader": {"repeat": 15},
    "reso": {"repeat": 25, "number": 5},
    "translator": {"repeat": 15},
    "wlm": {"repeat": 15},
    "wlmfp16": {"repeat": 15},
    "cart": {"number": 500},
    "atari": {"repeat": 15, "number": 5, "num_processes": 16},
    "ssd": {"repeat": 15, "number": 5},
    "fast_style": {"repeat": 25, "number": 5},
    "dcgan": {"repeat": 25, "number": 5},
    "convnet": {"repeat": 15},
    "convnet_fp16": {"repeat": 15},
    "convnet_distributed": {"repeat": 15},
    "convnet_distributed_fp16": {"repeat": 15},
    "dcgan_all": {"repeat": 15, "number": 5},
}

_CONVNETS = "image_classification/convnets/pytorch"
_COMMANDS = {  # script → job, and the one that its flags for half precision stand for
    "regression/polynome/pytorch/run.sh": ("toy_reg", "toy_reg"),
    "time_sequence_prediction/lstm/pytorch/run.sh": ("toy_lstm", "toy_lstm"),
    "variational_auto_encoder/auto_encoding_variational_bayes/pytorch/run.sh": ("vae", "vae"),
    "image_loading/loader/pytorch/run.sh": ("loader", "loader"),
    "super_resolution/subpixel_convolution/pytorch/run.sh": ("reso", "reso"),
    "natural_language_processing/rnn_translator/pytorch/run.sh": ("translator", "translator"),
    "natural_language_processing/word_language_model/pytorch/run.sh": ("wlm", "wlm"),
    "natural_language_processing/word_language_model/pytorch/run_fp16.sh": ("wlmfp16", "wlmfp16"),
    "reinforcement/cart_pole/pytorch/run.sh": ("cart", "cart"),
    "reinforcement/atari/pytorch/run.sh": ("atari", "atari"),
    "object_detection/single_stage_detector/pytorch/run.sh": ("ssd", "ssd"),
    "fast_neural_style/neural_style/pytorch/run.sh": ("fast_style", "fast_style"),
    "generative_adversarial_networks/dcgan/pytorch/run.sh": ("dcgan", "dcgan"),
    f"{_CONVNETS}/run.sh": ("convnet", "convnet_fp16"),
    f"{_CONVNETS}/run_distributed.sh": ("convnet_distributed", "convnet_distributed_fp16"),
    "recommendation/neural_collaborative_filtering/pytorch/run.sh": ("recom", "recom"),
}

_UNITS: Mapping[str, tuple[str, float]] = {  # job → its unit there, and how many of ours are one; others are the same
    "toy_lstm": ("optimizer steps", 97 * 999),  # waves, and the time steps that each of them predicts
    "wlm": ("segments of 35 tokens", 35),
    "wlmfp16": ("segments of 35 tokens", 35),
    "atari": ("updates x games", 128),
}


def script_of(job: str) -> str:
    """Return the original's script of a job; the job's own name where it has none."""
    own = job.removesuffix("_all")
    return next((f"./{script}" for script, jobs in _COMMANDS.items() if own in jobs), job)


def unit_of(job: str, unit: str) -> dict[str, Any]:
    """Return {name, items}: the unit that the original counted, and how many of `unit` are one of it."""
    name, items = _UNITS.get(job, (unit, 1))
    return {"name": name, "items": items}


def job_of_command(command: str, half: bool, whole_machine: bool) -> str | None:
    """Find the job of a script of the original suite, in any folder; None for any other command."""
    for script, (single, half_precision) in _COMMANDS.items():
        if command == script or command.endswith(f"/{script}"):
            job = half_precision if half else single
            return "dcgan_all" if job == "dcgan" and whole_machine else job
    return None
