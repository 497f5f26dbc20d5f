# SPDX-License-Identifier: MIT
"""`torch.nn.functional` for an array: the same names, arguments and defaults, and every tensor `[B, ...]`.

B is what dimension 0 of the tensors says, so a function serves an array and any part of it.
"""

from .distance_loss import gaussian_nll_loss as gaussian_nll_loss
from .distance_loss import huber_loss as huber_loss
from .distance_loss import kl_div as kl_div
from .distance_loss import l1_loss as l1_loss
from .distance_loss import mse_loss as mse_loss
from .distance_loss import poisson_nll_loss as poisson_nll_loss
from .distance_loss import smooth_l1_loss as smooth_l1_loss
from .loss import binary_cross_entropy as binary_cross_entropy
from .loss import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from .loss import cross_entropy as cross_entropy
from .loss import multi_margin_loss as multi_margin_loss
from .loss import multilabel_margin_loss as multilabel_margin_loss
from .loss import multilabel_soft_margin_loss as multilabel_soft_margin_loss
from .loss import nll_loss as nll_loss
from .ranking_loss import cosine_embedding_loss as cosine_embedding_loss
from .ranking_loss import ctc_loss as ctc_loss
from .ranking_loss import hinge_embedding_loss as hinge_embedding_loss
from .ranking_loss import margin_ranking_loss as margin_ranking_loss
from .ranking_loss import soft_margin_loss as soft_margin_loss
from .ranking_loss import triplet_margin_loss as triplet_margin_loss
from .ranking_loss import triplet_margin_with_distance_loss as triplet_margin_with_distance_loss

__all__ = [
    "batch_norm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "celu_",
    "cosine_embedding_loss",
    "cross_entropy",
    "ctc_loss",
    "elu",
    "elu_",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "group_norm",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hardtanh_",
    "hinge_embedding_loss",
    "huber_loss",
    "instance_norm",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "leaky_relu_",
    "local_response_norm",
    "log_softmax",
    "logsigmoid",
    "margin_ranking_loss",
    "mish",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "normalize",
    "poisson_nll_loss",
    "prelu",
    "relu",
    "relu6",
    "relu_",
    "rms_norm",
    "rrelu",
    "rrelu_",
    "selu",
    "selu_",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    "threshold_",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]
