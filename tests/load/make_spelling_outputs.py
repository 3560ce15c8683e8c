# SPDX-License-Identifier: Apache-2.0
"""Writes spellings/NAME.io.h5 beside each spellings/NAME.pt that expect.txt says is read: x, add where
the type has one, and y in float64, for `volup check`. Needs PyTorch, NumPy and h5py:

    python tests/load/make_spelling_outputs.py tests/load/spellings

y is the type's formula with the constants of expect.txt and the weights of the file, in float64. What
the file itself computes in PyTorch must agree with it in the precision of its weights, or nothing is
written.
"""
import os
import sys
import zlib

import h5py
import numpy as np
import torch

TOLERANCE = 1e-5
LOOSE = {"weights_half": 2e-2, "weights_bfloat16": 1e-1}  # PyTorch computes in the weights' type
GEOMETRY = {"stride": 2}
OTHER_GEOMETRY = {"BFunctionalConvolution": {"stride": (1, 2, 3), "padding": (0, 0, 1),
                                             "output_padding": (0, 1, 2), "groups": 2,
                                             "dilation": (3, 1, 1)}}


def constants_of_graph(graph):
    """Tensors that freezing put into the code."""
    found = []
    for node in graph.findAllNodes("prim::Constant"):
        if node.hasAttribute("value") and node.kindOf("value") == "t":
            found.append(node.t("value"))
    return found


def weights_of(module):
    tensors = list(module.parameters()) or constants_of_graph(module.graph)
    weight = [t for t in tensors if t.dim() == 5 and t.shape[-1] > 1]
    bias = [t for t in tensors if t.dim() == 1 and t.numel() > 1]
    assert len(weight) == 1 and len(bias) <= 1
    return weight[0].detach().double(), bias[0].detach().double() if bias else None


def formula(kind, constants, y, add):
    if kind == "A":
        shift, divisor, subtract, low, high = constants
        l = torch.logsumexp(y, 1, keepdim=True)
        return torch.clamp(l * torch.sigmoid(l + shift) / divisor - subtract, low, high)
    if kind == "B":
        return torch.sigmoid(torch.softmax(y, 1))
    shift, divisor, low, high = constants
    t = y + add
    return t * torch.clamp(t + shift, low, high) / divisor * t


def write(folder, name, expect):
    module = torch.jit.load(os.path.join(folder, name + ".pt"), map_location="cpu")
    kind, *constants = expect.split()
    weight, bias = weights_of(module)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    x = torch.from_numpy(rng.normal(0, 2, (2, weight.shape[0], 2, 3, 2)).astype(np.float32))
    geometry = OTHER_GEOMETRY.get(name.split("_")[0], GEOMETRY)
    convolved = torch.nn.functional.conv_transpose3d(x.double(), weight, bias, **geometry)
    add = torch.from_numpy(rng.normal(0, 2, tuple(convolved.shape)).astype(np.float32))
    y = formula(kind, [float(c) for c in constants], convolved, add.double())

    arguments = {"x": x, "add": add} if kind == "C" else {"x": x}
    stored = next(iter(module.parameters()), weight.float()).dtype
    with torch.no_grad():
        said = module(**{key: value.to(stored) for key, value in arguments.items()})
    error = ((said.double() - y).abs() / (1 + y.abs())).max().item()
    assert error < LOOSE.get(name, TOLERANCE), (name, error)
    with h5py.File(os.path.join(folder, name + ".io.h5"), "w") as file:
        for key, value in arguments.items():
            file[key] = value.numpy()
        file["y"] = y.numpy()
        file.attrs["tolerance"] = TOLERANCE


def main(folder):
    with open(os.path.join(folder, "expect.txt")) as file:
        for line in file:
            name, expect, _ = line.rstrip("\n").split("\t")
            # No number comes out of weights that are none.
            if expect != "refuse" and name != "weights_nan.pt":
                write(folder, name.removesuffix(".pt"), expect)


if __name__ == "__main__":
    main(sys.argv[1])
