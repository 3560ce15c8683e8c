#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the files of tests/load/hdf5/: state_dicts of PyTorch modules, dumped by h5py as people do.

    pip install torch h5py
    python3 make_hdf5.py [FOLDER]

NAME.h5 is the dump; NAME.io.h5 holds x, add and y (float64, by the module in double), the weight and
the bias that the loader must give, and what a user would say on the command line (`options`).
"""
import os
import sys

import h5py
import numpy as np
import torch
from torch import nn

SEED = 58


class LogsumexpSwishClamp(nn.Module):
    def __init__(self, i, o, **geometry):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(i, o, **geometry)
        self.bias = nn.Parameter(torch.randn(1, 1, 1, 1))

    def forward(self, x):
        l = torch.logsumexp(self.conv_transpose(x), dim=1, keepdim=True)
        return torch.clamp(l * torch.sigmoid(l + 3) / 6 - self.bias, -1, 1)


class SoftmaxSigmoid(nn.Module):
    def __init__(self, i, o, **geometry):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(i, o, **geometry)

    def forward(self, x):
        return torch.sigmoid(torch.softmax(self.conv_transpose(x), dim=1))


class AddHardswish(nn.Module):
    def __init__(self, i, o, **geometry):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(i, o, **geometry)
        self.bias = nn.Parameter(torch.randn(o, 1, 1, 1, 1))  # never used

    def forward(self, x, add):
        t = self.conv_transpose(x) + add
        return t * nn.functional.hardswish(t)


class Wrapper(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module


class Two(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.encoder, self.decoder = first, second
        self.head = nn.Conv3d(4, 4, 3)


def write_io(path, block, inputs, options, dtype=np.float32):
    """y is that of the weights as they are stored."""
    conv = block.conv_transpose
    wide = [torch.from_numpy(v).double() for v in inputs]
    with torch.no_grad():
        y = block.double()(*wide).numpy()
    with h5py.File(path + ".io.h5", "w") as f:
        f["x"] = inputs[0]
        if len(inputs) > 1:
            f["add"] = inputs[1]
        f["y"] = y
        f["weight"] = conv.weight.detach().numpy().astype(np.float32)
        if conv.bias is not None:
            f["bias"] = conv.bias.detach().numpy().astype(np.float32)
        f.attrs["options"] = options


def round_to(module, dtype):
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.from_numpy(p.numpy().astype(dtype).astype(np.float32)))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "hdf5")
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)

    def inputs(block, size=(2, 3, 4), add=False):
        x = rng.normal(0, 2, (2, block.conv_transpose.in_channels, *size)).astype(np.float32)
        if not add:
            return [x]
        with torch.no_grad():
            shape = block.conv_transpose(torch.from_numpy(x)).shape
        return [x, rng.normal(0, 1, shape).astype(np.float32)]

    def save(name, module, dtype=np.float32, nested=False, **storage):
        with h5py.File(os.path.join(folder, name + ".h5"), "w") as f:
            for key, value in module.state_dict().items():
                key = key.replace(".", "/") if nested else key
                f.create_dataset(key, data=value.numpy().astype(dtype), **(storage if value.ndim == 5 else {}))

    k3 = dict(kernel_size=3, stride=2, padding=1)
    a_flags = "--type logsumexp_swish_clamp --stride 2 --padding 1"
    b_flags = "--type softmax_sigmoid --stride 2 --padding 1 --output-padding 1"
    c_flags = "--type add_hardswish --stride 2 --padding 1 --output-padding 1"
    io = lambda name: os.path.join(folder, name)

    block = LogsumexpSwishClamp(3, 4, **k3)
    save("flat_a", block)
    write_io(io("flat_a"), block, inputs(block), a_flags)

    block = SoftmaxSigmoid(3, 4, output_padding=1, **k3)
    save("nested_b", block, nested=True)
    write_io(io("nested_b"), block, inputs(block), b_flags)

    block = AddHardswish(3, 4, output_padding=1, **k3)
    save("wrapped_c", Wrapper(block))
    write_io(io("wrapped_c"), block, inputs(block, add=True), c_flags)

    block = SoftmaxSigmoid(4, 6, kernel_size=(1, 2, 3), stride=(2, 1, 3), padding=(0, 1, 1),
                           output_padding=(1, 0, 2), groups=2, bias=False)
    save("compiled_groups", torch.compile(block))
    write_io(io("compiled_groups"), block, inputs(block), "--type softmax_sigmoid --stride 2x1x3 "
             "--padding 0x1x1 --output-padding 1x0x2 --groups 2")

    # Of two blocks, one.
    first, second = LogsumexpSwishClamp(4, 4, dilation=2, kernel_size=2), AddHardswish(4, 4, kernel_size=2)
    save("two_blocks", Two(first, second))
    write_io(io("two_blocks"), first, inputs(first),
             "--type logsumexp_swish_clamp --stride 1 --dilation 2 --submodule encoder")

    for name, dtype, storage in (
            ("packed_float16", np.float16, dict(chunks=(2, 3, 2, 3, 2), compression="gzip", shuffle=True,
                                                fletcher32=True)),
            ("packed_big_endian", ">f4", dict(chunks=(1, 4, 3, 3, 3), compression="gzip",
                                              compression_opts=9, shuffle=True)),
            ("float64", ">f8", dict(chunks=(3, 4, 3, 3, 3), fletcher32=True))):
        block = LogsumexpSwishClamp(3, 4, **k3)
        round_to(block, dtype)
        save(name, block, dtype=dtype, **storage)
        write_io(io(name), block, inputs(block), a_flags)

    # A filter that libhdf5 does not have, and one that h5py brings along.
    block = LogsumexpSwishClamp(3, 4, **k3)
    save("refuse_lzf", block, compression="lzf")


if __name__ == "__main__":
    main()
