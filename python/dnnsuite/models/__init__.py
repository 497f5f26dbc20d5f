# SPDX-License-Identifier: MIT
"""Architectures. `BERT` takes its `nn` as an argument; the others are ordinary torch modules for
`dnnsuite.fuse`."""

from . import multibox
from .bert import BERT
from .dcgan import GAN, Discriminator, Generator
from .espcn import ESPCN
from .fast_style import StyleJudge, TransformerNet, VGG16Features, gram_matrix
from .gnmt import GNMT, label_smoothing_loss
from .gru_lm import GRULanguageModel
from .lstm_lm import LSTMLanguageModel
from .mlp import MLP
from .nature_cnn import NatureCNN
from .neumf import NeuMF
from .pointnet import PointNetClassifier, PointNetSegmenter, TransformNet, orthogonality_loss
from .resnet import ResNet, ResNet18, ResNet50
from .sine_lstm import SineLSTM
from .ssd import SSD300
from .transformer_lm import TransformerLanguageModel
from .vae import VAE, negative_elbo

__all__ = [
    "BERT", "ESPCN", "GAN", "GNMT", "MLP", "SSD300", "VAE", "Discriminator", "GRULanguageModel", "Generator",
    "LSTMLanguageModel", "NatureCNN", "NeuMF", "PointNetClassifier", "PointNetSegmenter", "ResNet", "ResNet18",
    "ResNet50", "SineLSTM", "StyleJudge", "TransformNet", "TransformerLanguageModel", "TransformerNet", "VGG16Features",
    "gram_matrix", "label_smoothing_loss", "multibox", "negative_elbo", "orthogonality_loss",
]  # fmt: skip
