# SPDX-License-Identifier: MIT
"""Tiny models of public libraries, the extra `zoo`, trained as apart."""

import pytest
import torch

import dnnsuite
from helpers import make_models
from trained_models import check_trained

pytestmark = pytest.mark.filterwarnings("ignore")  # a library's own


def of_images():
    torchs = pytest.importorskip("einops.layers.torch")
    return torch.nn.Sequential(
        torchs.Rearrange("n c (h a) (w b) -> n (h w) (a b c)", a=4, b=4),
        torch.nn.Linear(48, 8),
        torch.nn.GELU(),
        torchs.Reduce("n t c -> n c", "mean"),
        torch.nn.Linear(8, 3),
    )


def test_layers_of_einops():
    """They are saved by what made them."""
    check_trained(of_images, (2, 3, 8, 8))


GRAPH_LAYERS = {
    "gcn": lambda g: g.GCNConv(4, 4),
    "sage": lambda g: g.SAGEConv(4, 4),
    "gat": lambda g: g.GATConv(4, 4),
    "gin": lambda g: g.GINConv(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())),
    "transformer": lambda g: g.TransformerConv(4, 4),
    "several": lambda g: g.GraphSAGE(4, 4, 2, jk="cat", out_channels=4),
}


@pytest.mark.parametrize("kind", GRAPH_LAYERS)
def test_layers_of_torch_geometric(kind):
    library = pytest.importorskip("torch_geometric.nn")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.out = GRAPH_LAYERS[kind](library), torch.nn.Linear(4, 2)
            self.register_buffer("edges", torch.tensor([[0, 1, 2, 3, 4, 5, 0], [1, 2, 3, 4, 5, 0, 3]]))

        def forward(self, x):
            return self.out(self.layer(x, self.edges).relu())

    check_trained(Net, (6, 4))


@pytest.mark.parametrize("name", ["resnet10t", "mobilenetv3_small_050"])
def test_models_of_timm(name):
    dnnsuite.data.import_torchvision()
    timm = pytest.importorskip("timm")
    check_trained(lambda: timm.create_model(name, num_classes=3, drop_rate=0.0).eval(), (2, 3, 32, 32), runner=False)


def test_a_network_with_quantized_weights():
    """`torch.ao`'s layers derive from `ABC` before `torch.nn.Module`; they have their sizes after a first call."""
    quantization = pytest.importorskip("torch.ao.quantization")
    torch.manual_seed(0)

    def make():
        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).train()
        net.qconfig = quantization.get_default_qat_qconfig("fbgemm")
        net = quantization.prepare_qat(net)
        net(torch.randn(6, 4))
        return net

    models, x = make_models(make, 2), torch.randn(2, 5, 4)
    array = dnnsuite.fuse(models)
    for _ in range(2):
        output = array(x)
        torch.testing.assert_close(output, torch.stack([m(one) for m, one in zip(models, x, strict=True)]))
    array(x).sum().backward()
    assert all(parameter.grad is not None for parameter in array.parameters())
