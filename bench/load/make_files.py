#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the files that load_bench reads: each kind with a weight of 100 MB, and with a small one.

    pip install torch safetensors onnx h5py
    python3 make_files.py FOLDER path/to/volup

The block is softmax_sigmoid (stride 2, padding 1, output padding 1) everywhere. FOLDER/large and
FOLDER/small get the same names; volup's own HDF5 is made of the safetensors file by `volup convert`.
"""
import os
import subprocess
import sys

import h5py
import onnx
import torch
from onnx import TensorProto, helper
from safetensors.torch import save_file

SEED = 26
SHAPES = {"large": (1024, 904), "small": (2, 3)}  # channels; kernel 3: 99,975,168 bytes


class SoftmaxSigmoid(torch.nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.up = torch.nn.ConvTranspose3d(channels_in, channels_out, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x):
        return torch.sigmoid(torch.softmax(self.up(x), dim=1))


def onnx_model(weight, bias):
    axes = {"strides": [2] * 3, "pads": [1] * 6, "output_padding": [1] * 3, "kernel_shape": [3] * 3}
    nodes = [
        helper.make_node("ConvTranspose", ["x", "up.weight", "up.bias"], ["c"], "up", **axes),
        helper.make_node("Softmax", ["c"], ["s"], "softmax", axis=1),
        helper.make_node("Sigmoid", ["s"], ["y"], "sigmoid"),
    ]
    tensors = [
        helper.make_tensor(name, TensorProto.FLOAT, list(values.shape), values.numpy().tobytes(), raw=True)
        for name, values in (("up.weight", weight), ("up.bias", bias))
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", weight.shape[0], "d", "h", "w"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "block", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def write(folder, channels, volup):
    os.makedirs(folder, exist_ok=True)
    path = lambda name: os.path.join(folder, name)
    torch.manual_seed(SEED)
    block = SoftmaxSigmoid(*channels)
    state = {name: value.detach().clone() for name, value in block.state_dict().items()}
    weight, bias = state["up.weight"], state["up.bias"]
    torch.save(state, path("state_dict.pt"))
    save_file(state, path("weights.safetensors"))
    torch.jit.script(block).save(path("torchscript.pt"))
    with open(path("graph.onnx"), "wb") as file:
        file.write(onnx_model(weight, bias).SerializeToString())
    with h5py.File(path("state_dict.h5"), "w") as file:
        file["up.weight"], file["up.bias"] = weight.numpy(), bias.numpy()
    geometry = ["--type", "B", "--stride", "2", "--padding", "1", "--output-padding", "1"]
    subprocess.run([volup, "convert", path("weights.safetensors"), path("volup.h5"), "-q", *geometry], check=True)


for name, channels in SHAPES.items():
    write(os.path.join(sys.argv[1], name), channels, sys.argv[2])
