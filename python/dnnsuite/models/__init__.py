# SPDX-License-Identifier: MIT
"""Architectures. `BERT` takes its `nn` as an argument; the others are ordinary torch modules for
`dnnsuite.fuse`."""

from . import experts, fcos, multibox
from .convolutional import ESPCN, GAN, ConvNeXt, Discriminator, Generator, NatureCNN, ResNet, ResNet18, ResNet50, UNet
from .decoder import Adapted, Added, Decoder, StateSpace, adapt
from .experts import Mixture
from .fast_style import StyleJudge, TransformerNet, VGG16Features, gram_matrix
from .fcos import Detector
from .graphs import (
    GraphAttention,
    GraphNetwork,
    PointNetClassifier,
    PointNetSegmenter,
    TransformNet,
    orthogonality_loss,
)
from .perceptrons import MLP, VAE, Agent, Crosses, NeuMF, negative_elbo
from .perceptrons import widened as widened
from .recurrent import GNMT, GRULanguageModel, LSTMLanguageModel, SineLSTM, label_smoothing_loss
from .ssd import SSD300
from .transformers import (
    BERT,
    Averaged,
    Conformer,
    DiffusionTransformer,
    Dino,
    Encoder,
    Student,
    TransformerLanguageModel,
    spread,
)

__all__ = [
    "BERT", "ESPCN", "GAN", "GNMT", "MLP", "SSD300", "VAE", "Adapted", "Added", "Agent", "Averaged", "Conformer",
    "ConvNeXt", "Crosses", "Decoder", "Detector", "DiffusionTransformer", "Dino", "Discriminator", "Encoder",
    "GRULanguageModel", "Generator", "GraphAttention", "GraphNetwork", "LSTMLanguageModel", "Mixture", "NatureCNN",
    "NeuMF", "PointNetClassifier", "PointNetSegmenter", "ResNet", "ResNet18", "ResNet50", "SineLSTM", "StateSpace",
    "Student", "StyleJudge", "TransformNet", "TransformerLanguageModel", "TransformerNet", "UNet", "VGG16Features",
    "adapt", "experts", "fcos", "gram_matrix", "label_smoothing_loss", "multibox", "negative_elbo",
    "orthogonality_loss", "spread", "widened",
]  # fmt: skip
