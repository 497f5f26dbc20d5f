# SPDX-License-Identifier: MIT
"""Architectures. `BERT` takes its `nn` as an argument; the others are ordinary torch modules for
`dnnsuite.fuse`."""

from .bert import BERT as BERT
from .dcgan import Discriminator as Discriminator
from .dcgan import Generator as Generator
from .espcn import ESPCN as ESPCN
from .fast_style import TransformerNet as TransformerNet
from .fast_style import VGG16Features as VGG16Features
from .fast_style import gram_matrix as gram_matrix
from .lstm_lm import LSTMLanguageModel as LSTMLanguageModel
from .mlp import MLP as MLP
from .pointnet import PointNetClassifier as PointNetClassifier
from .pointnet import PointNetSegmenter as PointNetSegmenter
from .pointnet import TransformNet as TransformNet
from .pointnet import orthogonality_loss as orthogonality_loss
from .resnet18 import ResNet18 as ResNet18
from .resnet50 import ResNet50 as ResNet50
from .sine_lstm import SineLSTM as SineLSTM
from .transformer_lm import TransformerLanguageModel as TransformerLanguageModel
from .vae import VAE as VAE
from .vae import negative_elbo as negative_elbo

__all__ = [
    "BERT", "ESPCN", "MLP", "VAE", "Discriminator", "Generator", "LSTMLanguageModel", "PointNetClassifier",
    "PointNetSegmenter", "ResNet18", "ResNet50", "SineLSTM", "TransformNet", "TransformerLanguageModel",
    "TransformerNet", "VGG16Features", "gram_matrix", "negative_elbo", "orthogonality_loss",
]  # fmt: skip
