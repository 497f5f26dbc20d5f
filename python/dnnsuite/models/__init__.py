# SPDX-License-Identifier: MIT
"""Architectures. `BERT` takes its `nn` as an argument; the others are ordinary torch modules for
`dnnsuite.fuse`."""

from .bert import BERT
from .dcgan import GAN, Discriminator, Generator
from .espcn import ESPCN
from .fast_style import StyleJudge, TransformerNet, VGG16Features, gram_matrix
from .lstm_lm import LSTMLanguageModel
from .mlp import MLP
from .pointnet import PointNetClassifier, PointNetSegmenter, TransformNet, orthogonality_loss
from .resnet18 import ResNet18
from .resnet50 import ResNet50
from .sine_lstm import SineLSTM
from .transformer_lm import TransformerLanguageModel
from .vae import VAE, negative_elbo

__all__ = [
    "BERT", "ESPCN", "GAN", "MLP", "VAE", "Discriminator", "Generator", "LSTMLanguageModel", "PointNetClassifier",
    "PointNetSegmenter", "ResNet18", "ResNet50", "SineLSTM", "StyleJudge", "TransformNet", "TransformerLanguageModel",
    "TransformerNet", "VGG16Features", "gram_matrix", "negative_elbo", "orthogonality_loss",
]  # fmt: skip
