#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the ONNX files of tests/load/onnx/: by PyTorch's two exporters, and node by node.

    pip install torch onnx onnxscript onnxruntime h5py
    python3 make_onnx.py [FOLDER]

NAME.io.h5 holds x, add and y in float64: by the module in double, or by the definition below for files
made node by node, which ONNX Runtime must agree with in float32. It also holds the weight and bias that
the loader must give, and as attributes the epilogue's constants where they are others than the default.
refusals.txt has a line for each file that must be refused: its name, a tab, words of the refusal.
"""
import os
import sys
import warnings

import h5py
import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

from make_hdf5 import AddHardswish, LogsumexpSwishClamp, SoftmaxSigmoid

warnings.simplefilter("ignore")
SEED = 26
FOLDER = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "onnx")
REFUSALS = []


def rng_of(name):
    return np.random.default_rng(SEED + sum(map(ord, name)))


def write_io(name, x, add, y, weight, bias, constants=None):
    with h5py.File(os.path.join(FOLDER, name + ".io.h5"), "w") as f:
        f["x"], f["y"], f["weight"] = x, y, weight.astype(np.float32)
        if add is not None:
            f["add"] = add
        if bias is not None:
            f["bias"] = bias.astype(np.float32)
        for key, value in (constants or {}).items():
            f.attrs[key] = float(value)


# ---- By PyTorch --------------------------------------------------------------------------------


def export(name, block, opset, dynamo, **more):
    rng = rng_of(name)
    conv = block.conv_transpose
    with torch.no_grad():
        conv.weight.mul_(3)
    x = rng.normal(0, 2, (2, conv.in_channels, 2, 3, 4)).astype(np.float32)
    arguments = [torch.from_numpy(x)]
    add = None
    if isinstance(block, AddHardswish):
        add = rng.normal(0, 1, tuple(conv(arguments[0]).shape)).astype(np.float32)
        arguments.append(torch.from_numpy(add))
    path = os.path.join(FOLDER, name + ".onnx")
    if dynamo:
        more["external_data"] = False
    torch.onnx.export(block.eval(), tuple(arguments), path, opset_version=opset, dynamo=dynamo, **more)
    with torch.no_grad():
        y = block.double()(*[a.double() for a in arguments]).numpy()
    bias = None if conv.bias is None else conv.bias.detach().numpy()
    constants = {"subtract": np.float32(block.bias.item())} if isinstance(block, LogsumexpSwishClamp) else None
    write_io(name, x, add, y, conv.weight.detach().numpy(), bias, constants)


def export_all():
    torch.manual_seed(SEED)
    k3 = dict(kernel_size=3, stride=2, padding=1)
    for opset, dynamo in ((11, False), (13, False), (17, False), (18, True), (23, True)):
        label = f"torch_{'dynamo' if dynamo else 'script'}{opset}"
        export(label + "_a", LogsumexpSwishClamp(3, 4, **k3), opset, dynamo)
        export(label + "_b", SoftmaxSigmoid(3, 4, output_padding=1, **k3), opset, dynamo)
        export(label + "_c", AddHardswish(3, 4, output_padding=1, **k3), opset, dynamo)
    export("torch_mixed", SoftmaxSigmoid(4, 6, kernel_size=(1, 2, 3), stride=(2, 1, 3), padding=(0, 1, 1),
                                         output_padding=(1, 0, 2), groups=2, bias=False), 17, False)
    export("torch_dilated", LogsumexpSwishClamp(2, 3, kernel_size=2, dilation=(1, 2, 3), padding=1), 18, True)
    export("torch_dynamic_batch", AddHardswish(3, 4, **k3), 17, False, input_names=["x", "add"],
           dynamic_axes={"x": {0: "n"}, "add": {0: "n"}})


# ---- Node by node ------------------------------------------------------------------------------


def transposed(x, w, strides, begin, end, output_padding, dilations, groups):
    n, ci = x.shape[:2]
    k = w.shape[2:]
    size = [(x.shape[2 + a] - 1) * strides[a] + (k[a] - 1) * dilations[a] + 1 + output_padding[a] for a in range(3)]
    y = np.zeros([n, w.shape[1] * groups, *size])
    for g in range(groups):
        ins = slice(g * ci // groups, (g + 1) * ci // groups)
        outs = slice(g * w.shape[1], (g + 1) * w.shape[1])
        for i in np.ndindex(*x.shape[2:]):
            for j in np.ndindex(*k):
                o = [i[a] * strides[a] + j[a] * dilations[a] for a in range(3)]
                y[:, outs, o[0], o[1], o[2]] += x[:, ins, i[0], i[1], i[2]] @ w[ins, :, j[0], j[1], j[2]]
    return y[:, :, begin[0]:size[0] - end[0], begin[1]:size[1] - end[1], begin[2]:size[2] - end[2]]


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


def result_of(kind, y, add, shift=3.0, divisor=6.0, subtract=0.0, low=None, high=None):
    if kind == "b":
        e = np.exp(y - y.max(1, keepdims=True))
        return sigmoid(e / e.sum(1, keepdims=True))
    if kind == "a":
        m = y.max(1, keepdims=True)
        l = np.log(np.exp(y - m).sum(1, keepdims=True)) + m
        return np.clip(l * sigmoid(l + shift) / divisor - subtract, -1 if low is None else low,
                       1 if high is None else high)
    t = y + add
    return t * (np.clip(t + shift, 0 if low is None else low, 6 if high is None else high) / divisor) * t


class Graph:
    """A graph under construction: x -> ConvTranspose -> y, then what a case adds."""

    def __init__(self, opset=17, channels=(3, 4), kernel=(3, 3, 3), size=(2, 3, 4), bias=True, weight_type=np.float32,
                 dims=None, groups=1, name="g", **attributes):
        rng = rng_of(name)
        self.name, self.opset, self.nodes, self.initializers = name, opset, [], []
        self.x = rng.normal(0, 2, (2, channels[0], *size)).astype(np.float32)
        self.weight = rng.normal(0, 0.5, (channels[0], channels[1] // groups, *kernel)).astype(weight_type)
        self.bias = rng.normal(0, 1, channels[1]).astype(weight_type) if bias else None
        self.add = None
        self.inputs = [h.make_tensor_value_info("x", T.FLOAT, dims or list(self.x.shape))]
        self.put("w", self.weight)
        if bias:
            self.put("b", self.bias)
        if groups != 1:
            attributes["group"] = groups
        self.node("ConvTranspose", ["x", "w"] + (["b"] if bias else []), "y", name="up", **attributes)

    def put(self, name, value):
        self.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def scalar(self, value, dtype=np.float32):
        return self.put(f"c{len(self.initializers)}", np.asarray(value, dtype))

    def node(self, op, inputs, output, **attributes):
        self.nodes.append(h.make_node(op, inputs, [output], **attributes))
        return output

    def add_input(self, shape, dims=None):
        self.add = rng_of(self.name + "add").normal(0, 1, shape).astype(np.float32)
        self.inputs.append(h.make_tensor_value_info("add", T.FLOAT, dims or list(shape)))
        return self.node("Add", ["y", "add"], "t")

    def axes(self, op, inputs, output, axes, since, **attributes):
        """A reduction, whose axes became an input at opset `since`."""
        if self.opset >= since:
            return self.node(op, inputs + [self.scalar(axes, np.int64)], output, **attributes)
        return self.node(op, inputs, output, axes=axes, **attributes)

    def model(self, output, functions=()):
        graph = h.make_graph(self.nodes, "g", self.inputs, [h.make_tensor_value_info(output, T.FLOAT, None)],
                             self.initializers)
        imports = [h.make_opsetid("", self.opset), h.make_opsetid("com.example", 1)]
        return h.make_model(graph, opset_imports=imports, ir_version=8, producer_name="make_onnx",
                            producer_version="1")

    def save(self, output, kind, strides=(1, 1, 1), begin=(0, 0, 0), end=(0, 0, 0), output_padding=(0, 0, 0),
             dilations=(1, 1, 1), groups=1, check=True, edit=None, **constants):
        model = self.model(output)
        if edit:
            edit(model)
        onnx.save_model(model, os.path.join(FOLDER, self.name + ".onnx"))
        y = transposed(self.x.astype(np.float64), self.weight.astype(np.float64), strides, begin, end, output_padding,
                       dilations, groups)
        if self.bias is not None:
            y += self.bias.astype(np.float64).reshape(1, -1, 1, 1, 1)
        need = result_of(kind, y, self.add, **constants)
        if check:
            feeds = {"x": self.x, **({"add": self.add} if self.add is not None else {})}
            session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            got = session.run(None, feeds)[0]
            np.testing.assert_allclose(got, need, rtol=2e-4, atol=2e-4, err_msg=self.name)
        names = dict(low="clamp_min", high="clamp_max")
        write_io(self.name, self.x, self.add, need, self.weight, self.bias,
                 {names.get(k, k): np.float32(v) for k, v in constants.items()})

    def refuse(self, output, words, edit=None):
        model = self.model(output)
        if edit:
            edit(model)
        with open(os.path.join(FOLDER, self.name + ".onnx"), "wb") as f:
            f.write(model.SerializeToString())
        REFUSALS.append(f"{self.name}\t{words}")


def softmax_sigmoid(g):
    g.node("Softmax", ["y"], "p", axis=1)
    return g.node("Sigmoid", ["p"], "out")


def gate(g, l, shift=3.0, divisor=6.0):
    g.node("Add", [l, g.scalar(shift)], "l3")
    g.node("Sigmoid", ["l3"], "s")
    g.node("Mul", [l, "s"], "ls")
    return g.node("Div", ["ls", g.scalar(divisor)], "q")


def clip(g, value, low, high, output="out"):
    return g.node("Clip", [value, g.scalar(low), g.scalar(high)], output)


def build_padding():
    two = dict(strides=(2, 2, 2))
    for mode, upper in (("SAME_UPPER", True), ("SAME_LOWER", False)):
        # Totals of 1, 2 and 3.
        total = (1, 2, 3)
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        g = Graph(name="auto_pad_" + mode.lower(), kernel=(3, 4, 5), auto_pad=mode, strides=[2, 2, 2])
        g.save(softmax_sigmoid(g), "b", begin=small if upper else large, end=large if upper else small, **two)
        for shape, label in (((4, 5, 7), "cut"), ((5, 7, 10), "grown")):
            # 5, 7, 9 whole: cut by 1, 2, 2; or as it is, as it is, and one voxel more.
            whole = (5, 7, 9)
            cut = [max(w - s, 0) for w, s in zip(whole, shape)]
            grown = [max(s - w, 0) for w, s in zip(whole, shape)]
            small, large = [t // 2 for t in cut], [t - t // 2 for t in cut]
            g = Graph(name=f"output_shape_{label}_{mode.lower()}", auto_pad=mode, strides=[2, 2, 2],
                      output_shape=list(shape))
            g.save(softmax_sigmoid(g), "b", begin=small if upper else large, end=large if upper else small,
                   output_padding=grown, **two)
    g = Graph(name="output_shape_notset", strides=[2, 2, 2], output_shape=[4, 6, 9])
    g.save(softmax_sigmoid(g), "b", begin=(1, 1, 0), end=(0, 0, 0), **two)
    g = Graph(name="auto_pad_valid", strides=[2, 2, 2], auto_pad="VALID", bias=False)
    g.save(softmax_sigmoid(g), "b", **two)
    g = Graph(name="pads_per_side", kernel=(4, 3, 2), strides=[2, 1, 3], pads=[1, 0, 0, 2, 1, 0],
              output_padding=[1, 0, 2])
    g.save(softmax_sigmoid(g), "b", strides=(2, 1, 3), begin=(1, 0, 0), end=(2, 1, 0), output_padding=(1, 0, 2))
    g = Graph(name="groups_dilations", channels=(4, 6), groups=2, kernel=(2, 3, 1), strides=[1, 2, 1],
              dilations=[3, 2, 1], pads=[1, 2, 0, 0, 1, 0])
    g.save(softmax_sigmoid(g), "b", strides=(1, 2, 1), dilations=(3, 2, 1), begin=(1, 2, 0), end=(0, 1, 0), groups=2)


def build_spellings():
    for opset in (11, 13, 18, 23, 28):
        g = Graph(name=f"lse_in_steps{opset}", opset=opset)
        g.axes("ReduceMax", ["y"], "m", [1], 18)
        g.node("Sub", ["y", "m"], "d")
        g.node("Exp", ["d"], "e")
        g.axes("ReduceSum", ["e"], "z", [-4], 13)
        g.node("Log", ["z"], "log")
        g.node("Add", ["log", "m"], "l")
        g.save(clip(g, gate(g, "l"), -1, 1), "a")
        g = Graph(name=f"softmax_in_steps{opset}", opset=opset)
        g.node("Exp", ["y"], "e")
        g.axes("ReduceSum", ["e"], "z", [1], 13)
        g.node("Div", ["e", "z"], "p")
        g.save(g.node("Sigmoid", ["p"], "out"), "b")
    g = Graph(name="lse_plain")
    g.node("Exp", ["y"], "e")
    g.axes("ReduceSum", ["e"], "z", [1], 13)
    g.node("Log", ["z"], "l")
    g.save(clip(g, gate(g, "l"), -1, 1), "a")
    g = Graph(name="lse_unsqueezed")
    g.axes("ReduceLogSumExp", ["y"], "l4", [1], 18, keepdims=0)
    g.node("Unsqueeze", ["l4", g.scalar([1], np.int64)], "l")
    g.save(clip(g, gate(g, "l"), -1, 1), "a")
    g = Graph(name="other_constants")
    g.axes("ReduceLogSumExp", ["y"], "l", [1], 18)
    g.node("Sub", [gate(g, "l", 2.5, 5.0), g.put("sub", np.full((1, 1, 1, 1), 0.25, np.float32))], "v")
    g.node("Max", ["v", g.scalar(-0.5)], "low")
    g.save(g.node("Min", ["low", g.scalar([0.75])], "out"), "a", shift=2.5, divisor=5, subtract=0.25, low=-0.5,
           high=0.75)
    g = Graph(name="constants_in_nodes", opset=13)
    g.axes("ReduceLogSumExp", ["y"], "l", [1], 18)
    g.nodes.append(h.make_node("Constant", [], ["three"], value_float=3.0))
    g.nodes.append(h.make_node("Constant", [], ["six"], value_floats=[6.0]))
    g.node("Add", ["three", "l"], "l3")
    g.node("Sigmoid", ["l3"], "s")
    g.node("Mul", ["s", "l"], "ls")
    g.node("Div", ["ls", "six"], "q")
    weight = [i for i in g.initializers if i.name == "w"][0]
    g.initializers.remove(weight)
    g.nodes.insert(0, h.make_node("Constant", [], ["w"], value=weight))
    g.node("Identity", ["q"], "same")
    g.node("Dropout", ["same"], "drop")
    g.put("never", np.zeros(3, np.float32))
    g.save(clip(g, "drop", -1, 1), "a")
    shape = (2, 4, 4, 5, 6)
    for name in ("clip", "relu6", "hard_sigmoid", "reversed", "squares"):
        g = Graph(name="hardswish_" + name, opset=17)
        g.add_input(shape)
        if name == "hard_sigmoid":
            g.node("HardSigmoid", ["t"], "hs", alpha=1 / 6, beta=0.5)
            g.node("Mul", ["t", "hs"], "sw")
        elif name == "relu6":
            g.node("Add", ["t", g.scalar(3.0)], "t3")
            g.node("Relu", ["t3"], "r")
            g.node("Min", ["r", g.scalar(6.0)], "r6")
            g.node("Mul", ["t", "r6"], "tr")
            g.node("Mul", ["tr", g.scalar(1 / 6)], "sw")
        elif name == "squares":
            g.node("Pow", ["t", g.scalar(2.0)], "tt")
            g.node("Add", ["t", g.scalar(3.0)], "t3")
            clip(g, "t3", 0, 6, "r6")
            g.node("Div", ["r6", g.scalar(6.0)], "sw")
        else:
            g.node("Add", ["t", g.scalar(3.0)] if name == "clip" else [g.scalar(3.0), "t"], "t3")
            clip(g, "t3", 0, 6, "r6")
            g.node("Div", ["r6", g.scalar(6.0)], "h6")
            g.node("Mul", ["t", "h6"] if name == "clip" else ["h6", "t"], "sw")
        g.save(g.node("Mul", ["sw", "tt" if name == "squares" else "t"], "out"), "c",
               **({"divisor": 1 / np.float32(1 / 6)} if name == "relu6" else {}))
    g = Graph(name="hardswish_other_constants")
    g.add_input(shape)
    g.node("HardSigmoid", ["t"], "hs")  # 0.2 and 0.5
    g.node("Mul", ["t", "hs"], "sw")
    g.save(g.node("Mul", ["sw", "t"], "out"), "c", shift=2.5, divisor=5, high=5)


def build_types():
    for name, dtype in (("float16", np.float16), ("float64", np.float64)):
        g = Graph(name="weights_" + name, weight_type=dtype)
        for node in g.nodes:
            node.input[1:] = ["wide_" + i for i in node.input[1:]]
        for i in ("w", "b"):
            g.nodes.insert(0, h.make_node("Cast", [i], ["wide_" + i], to=T.FLOAT))
        g.save(softmax_sigmoid(g), "b")
    g = Graph(name="weights_typed_data")

    def typed(model):
        for tensor in model.graph.initializer:
            if tensor.data_type == T.FLOAT:
                values = numpy_helper.to_array(tensor).ravel().tolist()
                tensor.ClearField("raw_data")
                tensor.float_data.extend(values)

    g.save(softmax_sigmoid(g), "b", edit=typed)
    g = Graph(name="weights_bfloat16")
    g.weight = (g.weight.view(np.uint32) & 0xFFFF0000).view(np.float32)
    g.bias = (g.bias.view(np.uint32) & 0xFFFF0000).view(np.float32)
    output = softmax_sigmoid(g)
    g.nodes[0].input[0] = "narrow"
    g.nodes.insert(0, h.make_node("Cast", ["x"], ["narrow"], to=T.BFLOAT16))
    g.nodes.append(h.make_node("Cast", ["out"], ["wide"], to=T.FLOAT))

    def brain(model):
        for tensor, values, in_raw in zip(model.graph.initializer, (g.weight, g.bias), (True, False)):
            tensor.data_type = T.BFLOAT16
            tensor.ClearField("raw_data")
            bits = (values.view(np.uint32) >> 16).astype(np.uint16)
            if in_raw:
                tensor.raw_data = bits.tobytes()
            else:
                tensor.int32_data.extend(bits.ravel().tolist())

    g.save("wide", "b", check=False, edit=brain)  # ONNX Runtime has no bfloat16 here


def build_refusals():
    def case(name, words, make, output="out", edit=None, **arguments):
        g = Graph(name="refuse_" + name, **arguments)
        make(g)
        g.refuse(output, words, edit)

    case("relu", "got Relu, need logsumexp over channels, softmax over channels, or the addition of a second input",
         lambda g: g.node("Relu", ["y"], "out", name="act"))
    case("node_name", "(node 'act')", lambda g: g.node("LeakyRelu", ["y"], "out", name="act"))
    case("custom_domain", "got com.example::Magic", lambda g: g.node("Magic", ["y"], "out", domain="com.example"))
    case("opset10", "opset: got 10, need 11 to", softmax_sigmoid, opset=10)
    case("opset99", "opset: got 99, need 11 to", softmax_sigmoid, opset=99)
    case("flat_softmax", "over all axes from 1 on, as opset 11 has it", softmax_sigmoid, opset=11)
    case("softmax_depth", "got Softmax, over another axis than channels",
         lambda g: (g.node("Softmax", ["y"], "p", axis=2), g.node("Sigmoid", ["p"], "out")))
    case("conv_alone", "need more than the convolution", lambda g: g.node("Identity", ["y"], "out"))
    case("2d", "whose weight is [3, 4, 3, 3]", lambda g: (
        g.put("w2", np.zeros((3, 4, 3, 3), np.float32)), g.nodes.clear(),
        g.node("ConvTranspose", ["x", "w2"], "y"), softmax_sigmoid(g)))
    case("weight_is_input", "whose weight is no constant", lambda g: (
        g.inputs.append(h.make_tensor_value_info("v", T.FLOAT, [3, 4, 3, 3, 3])), g.nodes.clear(),
        g.node("ConvTranspose", ["x", "v"], "y"), softmax_sigmoid(g)))
    case("two_convolutions", "need one transposed convolution, not two", lambda g: (
        g.node("ConvTranspose", ["x", "w"], "z"), g.node("Add", ["y", "z"], "t"),
        g.node("Softmax", ["t"], "p", axis=1), g.node("Sigmoid", ["p"], "out")))
    case("per_channel", "with a constant of shape [4, 1, 1, 1]", lambda g: (
        g.put("many", np.zeros((4, 1, 1, 1), np.float32)), g.node("Add", ["y", "many"], "t"),
        g.node("Softmax", ["t"], "p", axis=1), g.node("Sigmoid", ["p"], "out")))
    case("unused_input", "input 'z': got one that the block does not use", lambda g: (
        g.inputs.append(h.make_tensor_value_info("z", T.FLOAT, [1])), softmax_sigmoid(g)))
    case("broadcast", "input 'add': got shape [4, 1, 1, 1], need that of the convolution's result", lambda g: (
        g.add_input((4, 1, 1, 1)), g.node("HardSwish", ["t"], "sw"), g.node("Mul", ["sw", "t"], "out")))
    case("hardswish_once", "need t * hardswish(t)",
         lambda g: (g.add_input((2, 4, 4, 5, 6)), g.node("HardSwish", ["t"], "out")))
    case("output_shape_dynamic", "output_shape: got [4, 5, 8] for an input of [2, 3, 0, 0, 0]", softmax_sigmoid,
         dims=[2, 3, "d", "h", "w"], output_shape=[4, 5, 8])
    case("same_below_stride", "padding: got -1 in all on axis D", softmax_sigmoid, kernel=(2, 3, 3),
         strides=[3, 3, 3], auto_pad="SAME_UPPER")
    case("pads_count", "pads: got [1, 1], need six of 0 or more (ConvTranspose, node 'up')", softmax_sigmoid,
         pads=[1, 1])
    case("negative_pads", "pads: got [-1, 0, 0, 0, 0, 0], need six of 0 or more", softmax_sigmoid,
         pads=[-1, 0, 0, 0, 0, 0])
    case("kernel_shape", "kernel_shape: got [1, 1, 1], need that of the weight", softmax_sigmoid,
         kernel_shape=[1, 1, 1])
    case("bias_length", "shape of the bias: got [3], need [4]", lambda g: (
        g.put("short", np.zeros(3, np.float32)), g.nodes.clear(),
        g.node("ConvTranspose", ["x", "w", "short"], "y"), softmax_sigmoid(g)))
    case("two_outputs", "outputs: got 2, need one", softmax_sigmoid,
         edit=lambda m: m.graph.output.append(h.make_tensor_value_info("y", T.FLOAT, None)))
    case("no_such_value", "value 'nowhere': got none of that name", lambda g: g.node("Sigmoid", ["nowhere"], "out"))
    case("short_data", "data: got 1295 bytes, need 1296 for the shape [3, 4, 3, 3, 3]", softmax_sigmoid,
         edit=lambda m: setattr(m.graph.initializer[0], "raw_data", m.graph.initializer[0].raw_data[:-1]))
    case("absurd_shape", "need sizes of 0 or more whose product is below 2^63", softmax_sigmoid,
         edit=lambda m: m.graph.initializer[0].dims.__setitem__(0, 1 << 62))
    case("integer_weight", "type: got INT8, need float16, bfloat16, float32 or float64", lambda g: (
        g.put("w8", np.zeros((3, 4, 3, 3, 3), np.int8)), g.nodes.clear(),
        g.node("ConvTranspose", ["x", "w8"], "y"), softmax_sigmoid(g)))

    def outside(model):
        onnx.external_data_helper.set_external_data(model.graph.initializer[0], "weights.bin", 0, 1296)
        model.graph.initializer[0].ClearField("raw_data")

    case("external_data", "got external data, in a file beside this one, need them in this file", softmax_sigmoid,
         edit=outside)
    case("cast_between", "got Sigmoid", lambda g: (
        g.node("Softmax", ["y"], "p", axis=1), g.node("Cast", ["p"], "p16", to=T.FLOAT16),
        g.node("Sigmoid", ["p16"], "out")))


os.makedirs(FOLDER, exist_ok=True)
export_all()
build_padding()
build_spellings()
build_types()
build_refusals()
with open(os.path.join(FOLDER, "refusals.txt"), "w") as f:
    f.write("\n".join(REFUSALS) + "\n")
