# SPDX-License-Identifier: MIT
"""Architectures. `BERT` takes its `nn` as an argument; the others are ordinary torch modules for
`dnnsuite.fuse`."""

from . import experts, fcos, multibox
from .agent import Agent
from .bert import BERT
from .conformer import Conformer
from .convnext import ConvNeXt
from .crosses import Crosses
from .dcgan import GAN, Discriminator, Generator
from .decoder import Adapted, Added, Decoder, adapt
from .diffusion_transformer import DiffusionTransformer
from .espcn import ESPCN
from .experts import Mixture
from .fast_style import StyleJudge, TransformerNet, VGG16Features, gram_matrix
from .fcos import Detector
from .gnmt import GNMT, label_smoothing_loss
from .graphs import GraphAttention, GraphNetwork
from .gru_lm import GRULanguageModel
from .lstm_lm import LSTMLanguageModel
from .mlp import MLP
from .nature_cnn import NatureCNN
from .neumf import NeuMF
from .pointnet import PointNetClassifier, PointNetSegmenter, TransformNet, orthogonality_loss
from .resnet import ResNet, ResNet18, ResNet50
from .sine_lstm import SineLSTM
from .ssd import SSD300
from .state_space import StateSpace
from .transformer_lm import TransformerLanguageModel
from .unet import UNet
from .vae import VAE, negative_elbo
from .vision_transformer import Averaged, Dino, Encoder, Student, spread
from .widened import widened as widened

__all__ = [
    "BERT", "ESPCN", "GAN", "GNMT", "MLP", "SSD300", "VAE", "Adapted", "Added", "Agent", "Averaged", "Conformer",
    "ConvNeXt", "Crosses", "Decoder", "Detector", "DiffusionTransformer", "Dino", "Discriminator", "Encoder",
    "GRULanguageModel", "Generator", "GraphAttention", "GraphNetwork", "LSTMLanguageModel", "Mixture", "NatureCNN",
    "NeuMF", "PointNetClassifier", "PointNetSegmenter", "ResNet", "ResNet18", "ResNet50", "SineLSTM", "StateSpace",
    "Student", "StyleJudge", "TransformNet", "TransformerLanguageModel", "TransformerNet", "UNet", "VGG16Features",
    "adapt", "experts", "fcos", "gram_matrix", "label_smoothing_loss", "multibox", "negative_elbo",
    "orthogonality_loss", "spread", "widened",
]  # fmt: skip
