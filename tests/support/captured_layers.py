# SPDX-License-Identifier: MIT
"""Models of each kind of layer, and batches for them: steps that are captured on a GPU, and by a double of graphs."""

import torch

from dnnsuite.nn import checkpoint as own_checkpoint


def mlp():
    layers = [torch.nn.Linear(20, 32), torch.nn.LayerNorm(32), torch.nn.GELU(), torch.nn.Dropout(0.2)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(32, 5))


def convnet():
    return torch.nn.Sequential(
        *(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU()),
        *(torch.nn.Conv2d(8, 8, 3, 2, 1, groups=8), torch.nn.Conv2d(8, 12, 1), torch.nn.GroupNorm(4, 12)),
        *(torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(48, 5)),
    )


def upwards():
    return torch.nn.Sequential(
        *(torch.nn.ConvTranspose2d(3, 6, 4, 2, 1), torch.nn.InstanceNorm2d(6), torch.nn.LeakyReLU(0.1)),
        *(torch.nn.AvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(96, 5)),
    )


class Draws(torch.nn.Module):
    """Numbers of each model's own stream, by functions and by layers, of which one is called twice."""

    def __init__(self):
        super().__init__()
        self.body, self.drop, self.out = torch.nn.Linear(20, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 5)

    def forward(self, x):
        x = torch.nn.functional.dropout(self.drop(self.body(x)), 0.2, self.training)
        return self.out(self.drop(x + 0.1 * torch.randn_like(x)))


class OwnNumbers(torch.nn.Module):
    """Numbers that differ from model to model: a factor, a rate, a slope, a scale of attention."""

    def __init__(self):
        super().__init__()
        self.body, self.out = torch.nn.Linear(20, 16), torch.nn.Linear(16, 5)
        self.factor, self.rate, self.slope, self.scale = (0.1 + float(number) / 2 for number in torch.rand(4))

    def forward(self, x):
        x = torch.nn.functional.leaky_relu(self.body(x) * self.factor, self.slope)
        x = torch.nn.functional.dropout(x, self.rate, self.training)
        tokens = x.view(-1, 4, 4)
        x = torch.nn.functional.scaled_dot_product_attention(tokens, tokens, tokens, scale=self.scale)
        return self.out(x.flatten(1))


class Recurrent(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embed = torch.nn.Embedding(30, 12)
        self.rnn = getattr(torch.nn, kind)(12, 16, 2, batch_first=True, dropout=0.1)
        self.out = torch.nn.Linear(16, 5)

    def forward(self, x):
        return self.out(self.rnn(self.embed(x))[0][:, -1])


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(30, 16)
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True)
        self.out = torch.nn.Linear(16, 5)

    def forward(self, x):
        return self.out(self.layer(self.embed(x)).mean(1))


class Keeps(torch.nn.Module):
    """The autograd graph of a step lives on in `last`, and with it nodes that know the stream of their birth."""

    def __init__(self):
        super().__init__()
        self.body, self.last = mlp(), None

    def forward(self, x):
        self.last = self.body(x)
        return self.last


class Checkpointed(torch.nn.Module):
    def __init__(self, how):
        super().__init__()
        self.first, self.second, self.how = torch.nn.Conv2d(3, 6, 3), torch.nn.Conv2d(6, 5, 3), how

    def forward(self, x):
        return self.how(lambda x: self.second(x.relu()), self.first(x)).mean((2, 3))


def reentrant(*args):
    return torch.utils.checkpoint.checkpoint(*args, use_reentrant=True)


def vectors(rows=12):
    return torch.randn(rows, 20)


def images(rows=12):
    return torch.randn(rows, 3, 8, 8)


def tokens(rows=12):
    return torch.randint(30, (rows, 7))


LAYERS = {
    "mlp": (mlp, vectors),
    "convolutions": (convnet, images),
    "transposed convolutions": (upwards, images),
    "lstm": (lambda: Recurrent("LSTM"), tokens),
    "gru": (lambda: Recurrent("GRU"), tokens),
    "rnn": (lambda: Recurrent("RNN"), tokens),
    "attention": (Attention, tokens),
    "draws by functions": (Draws, vectors),
    "numbers of each model": (OwnNumbers, vectors),
    "a kept output": (Keeps, vectors),
    "dnnsuite's checkpoint": (lambda: Checkpointed(own_checkpoint), images),
}
