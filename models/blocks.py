# SPDX-License-Identifier: Apache-2.0
"""The three blocks as PyTorch modules: what the .pt files here were made from.

Holds the definitions and their reference shapes; makes no weights and no data.
"""

import dataclasses

import torch
import torch.nn.functional as F
from torch import nn


class LogSumExpSwishClamp(nn.Module):
    """Block A: one output channel, the gated logsumexp over the convolution's channels."""

    def __init__(self):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(3, 16, 3, stride=2, padding=1)
        self.bias = nn.Parameter(torch.zeros(1, 1, 1, 1))

    def forward(self, x):
        x = self.conv_transpose(x)
        x = torch.logsumexp(x, dim=1, keepdim=True)
        x = x * torch.sigmoid(x + 3) / 6
        x = x - self.bias
        return torch.clamp(x, min=-1, max=1)


class SoftmaxSigmoid(nn.Module):
    """Block B: sigmoid of the softmax over the convolution's channels."""

    def __init__(self):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(32, 64, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x):
        x = self.conv_transpose(x)
        x = torch.softmax(x, dim=1)
        return torch.sigmoid(x)


class AddHardswish(nn.Module):
    """Block C: adds a tensor, then t * hardswish(t). Its own bias is never used."""

    def __init__(self):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(32, 64, 3, stride=2, padding=1, output_padding=1)
        self.bias = nn.Parameter(torch.zeros(64, 1, 1, 1, 1))

    def forward(self, x, add_input):
        x = self.conv_transpose(x)
        x = x + add_input
        return x * F.hardswish(x)


@dataclasses.dataclass(frozen=True)
class Block:
    letter: str
    name: str  # stem of the files
    module: type
    reference: tuple  # the shape of x that benchmarks use
    small: tuple  # the shape of x in <name>.io.h5
    takes_add: bool = False


BLOCKS = (
    Block("A", "logsumexp_swish_clamp", LogSumExpSwishClamp, (128, 3, 16, 32, 32), (2, 3, 5, 6, 7)),
    Block("B", "softmax_sigmoid", SoftmaxSigmoid, (16, 32, 16, 32, 32), (2, 32, 3, 4, 5)),
    Block("C", "add_hardswish", AddHardswish, (128, 32, 16, 16, 16), (2, 32, 3, 4, 5), True),
)
