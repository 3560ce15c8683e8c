# SPDX-License-Identifier: Apache-2.0
"""Writes checkpoints/: small files of weights alone, as PyTorch and safetensors write them, and
checkpoints/expect.txt, which says what the loader must make of each. Needs PyTorch 2.11, NumPy, h5py
and safetensors:

    python tests/load/make_checkpoints.py tests/load/checkpoints

A line of expect.txt, by tabs: file; options ("C stride=2 padding=1 submodule=up"); "load",
"refuse", "kind" (no loader module is asked) or "not_finite"; a word that the notes (or the refusal)
must hold, or "-"; the unused names, by commas, "-" for none, "*" for any. The weights of every file that loads are those of weight_values() and bias_values(), which each
stored type holds exactly; the tests compute them again. Two runs give the same bytes, but for
R_legacy.pt, which holds addresses.

io_A.h5, io_B.h5, io_C.h5: inputs and float64 outputs of the three blocks with those weights.
"""

import argparse
import io
import os
import pathlib
import sys
import zipfile
from collections import OrderedDict

import h5py
import numpy as np
import safetensors.torch
import torch
from torch import nn

GEOMETRY = {"A": (3, 4, {"padding": 1}), "B": (4, 6, {"padding": 1, "output_padding": 1}),
            "C": (2, 4, {"padding": 1, "output_padding": 1})}
OPTIONS = {"A": "A stride=2 padding=1", "B": "B stride=2 padding=1 output_padding=1",
           "C": "C stride=2 padding=1 output_padding=1"}


def weight_values(count):
    return torch.tensor([((i * 37) % 101 - 50) / 64 for i in range(count)])


def bias_values(count):
    return torch.tensor([((i * 11) % 17 - 8) / 8 for i in range(count)])


def fill(conv):
    conv.weight.data = weight_values(conv.weight.numel()).reshape(conv.weight.shape)
    if conv.bias is not None:
        conv.bias.data = bias_values(conv.bias.numel())
    return conv


def up(letter, groups=1, bias=True):
    inner, outer, rest = GEOMETRY[letter]
    return fill(nn.ConvTranspose3d(inner, outer, 3, stride=2, groups=groups, bias=bias, **rest))


class Block(nn.Module):
    def __init__(self, letter, **options):
        super().__init__()
        self.letter = letter
        self.conv_transpose = up(letter, **options)
        if letter == "A":
            self.bias = nn.Parameter(torch.full((1, 1, 1, 1), 0.25))
        if letter == "C":
            self.bias = nn.Parameter(torch.full((4, 1, 1, 1, 1), 100.0))

    def forward(self, x, add=None):
        y = self.conv_transpose(x)
        if self.letter == "A":
            l = torch.logsumexp(y, 1, keepdim=True)
            return torch.clamp(l * torch.sigmoid(l + 3) / 6 - self.bias, -1, 1)
        if self.letter == "B":
            return torch.sigmoid(torch.softmax(y, 1))
        t = y + add
        return t * torch.nn.functional.hardswish(t)


class Runs:
    """What a loader that executes pickles would do: leave a file behind."""

    def __reduce__(self):
        return os.system, ("touch /tmp/volup_pickle_was_executed",)


def saved(value, **options):
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


def rewrite(data, change, method=zipfile.ZIP_STORED):
    """The archive with each entry's content changed; None leaves it out."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", method) as new:
        for info in old.infolist():
            content = change(info.filename, old.read(info.filename))
            if content is not None:
                new.writestr(zipfile.ZipInfo(info.filename), content, method)
    return out.getvalue()


def without_checksums(value):
    torch.serialization.set_crc32_options(False)
    data = saved(value)
    torch.serialization.set_crc32_options(True)
    return data


def converted(state, dtype):
    return OrderedDict((name, tensor.to(dtype)) for name, tensor in state.items())


def shared_views(state):
    """Weight and bias as views of one storage, the weight transposed in it."""
    weight, bias = state["conv_transpose.weight"], state["conv_transpose.bias"]
    storage = torch.zeros(7 + weight.numel() + 5 + bias.numel() * 2)
    view = storage[7:7 + weight.numel()].view(tuple(reversed(weight.shape)))
    view = view.permute(4, 3, 2, 1, 0)
    view.copy_(weight)
    strided = storage[7 + weight.numel() + 5:][::2]
    strided.copy_(bias)
    return OrderedDict([("conv_transpose.weight", view), ("conv_transpose.bias", strided)])


def write_io(letter, path):
    rng = np.random.default_rng({"A": 58, "B": 49, "C": 26}[letter])
    module = Block(letter).double()
    x = rng.normal(0, 1, (2, GEOMETRY[letter][0], 3, 4, 5)).astype(np.float32)
    tensors = {"x": x}
    inputs = [torch.from_numpy(x).double()]
    if letter == "C":
        shape = tuple(module.conv_transpose(inputs[0]).shape)
        tensors["add"] = rng.normal(0, 2, shape).astype(np.float32)
        inputs.append(torch.from_numpy(tensors["add"]).double())
    with torch.no_grad():
        tensors["y"] = module(*inputs).numpy()
    with h5py.File(path, "w") as file:
        for name, values in tensors.items():
            file.create_dataset(name, data=values)
        file.attrs["tolerance"] = 1e-4 if letter == "C" else 1e-5


def main(folder):
    os.makedirs(folder, exist_ok=True)
    lines = []
    torch.manual_seed(5)

    def keep(name, data, options, expect="load", word="-", unused="-"):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)
        lines.append("\t".join([name, options, expect, word, unused]))

    def again(name, options, expect="load", word="-", unused="-"):
        lines.append("\t".join([name, options, expect, word, unused]))

    a, b, c = (OrderedDict((k, v.detach()) for k, v in Block(letter).state_dict().items())
               for letter in "ABC")
    parameters = OrderedDict(Block("B").named_parameters())
    ways = OPTIONS["B"]

    # ---- state_dicts ----
    keep("A_plain.pt", saved(a), OPTIONS["A"], word="subtract is the file's 'bias'")
    keep("B_plain.pt", saved(b), ways)
    keep("C_plain.pt", saved(c), OPTIONS["C"], unused="bias")
    again("B_plain.pt", ways + " in=4 out=6 kernel=3")
    again("B_plain.pt", ways + " submodule=conv_transpose")
    again("B_plain.pt", ways + " submodule=nowhere", "refuse", "need one of 'conv_transpose.weight'")
    again("B_plain.pt", "", "refuse", "no type and no geometry")
    again("B_plain.pt", "B", "refuse", "no geometry")
    again("B_plain.pt", "stride=2", "refuse", "no type")
    again("B_plain.pt", ways + " groups=3", "refuse", "a multiple of groups, which are 3")
    again("B_plain.pt", ways + " groups=2", "refuse", "shape of 'conv_transpose.bias' [6]")
    again("A_plain.pt", OPTIONS["A"] + " subtract=0.25")
    again("A_plain.pt", OPTIONS["A"] + " subtract=0.5", "refuse", "need 0.5 as the options say")
    keep("A_no_scalar.pt", saved(OrderedDict(list(a.items())[1:])), OPTIONS["A"],
         word="subtract is 0")
    keep("B_dict.pt", saved(dict(b)), ways)
    keep("B_parameters.pt", saved(dict(parameters)), ways)
    module = Block("B")
    adam = torch.optim.Adam(module.parameters())
    module(torch.ones(1, 4, 2, 2, 2)).sum().backward()
    adam.step()
    keep("B_checkpoint.pt",
         saved({"epoch": 3, "state_dict": b, "optimizer": adam.state_dict(), "loss": 0.5,
                "args": argparse.Namespace(rate=1e-3, out=pathlib.PurePosixPath("runs")),
                "best": np.float64(0.25), "rng": torch.get_rng_state(), "seed": 2 ** 100}),
         ways, word="'state_dict', which holds 'epoch', 'optimizer'")
    keep("B_model.pt", saved({"model": b}), ways, word="'model'")
    keep("B_model_state_dict.pt", saved({"model_state_dict": b, "step": 1}), ways,
         word="'model_state_dict'")
    again("B_model_state_dict.pt", ways + " submodule=model_state_dict.conv_transpose")
    keep("R_two_containers.pt", saved({"model": b, "state_dict": b}), ways, "refuse",
         "'state_dict.conv_transpose.weight'")
    again("R_two_containers.pt", ways + " submodule=model",
          unused="state_dict.conv_transpose.bias,state_dict.conv_transpose.weight")
    keep("B_data_parallel.pt", saved({"module." + k: v for k, v in b.items()}), ways)
    again("B_data_parallel.pt", ways + " submodule=conv_transpose")
    again("B_data_parallel.pt", ways + " submodule=module.conv_transpose")
    keep("B_compiled.pt", saved({"module._orig_mod.net." + k: v for k, v in b.items()}), ways)
    again("B_compiled.pt", ways + " submodule=net")
    keep("B_nested.pt", saved({"net": {"up": {"weight": b["conv_transpose.weight"],
                                              "bias": b["conv_transpose.bias"]}}}), ways)
    net = nn.ModuleDict({
        "stem": nn.Conv3d(1, 4, 3), "norm": nn.BatchNorm3d(4),
        "decoder": nn.ModuleDict({"up1": Block("B"), "up2": Block("C")}), "head": nn.Linear(4, 2)})
    for name in ("stem", "norm", "head"):
        for parameter in net[name].parameters():
            nn.init.uniform_(parameter)
    keep("B_network.pt", saved(net.state_dict()), ways, "refuse",
         "got 3 that may be the block's, 'stem.weight' [4, 1, 3, 3, 3] float32, "
         "'decoder.up1.conv_transpose.weight'")
    again("B_network.pt", "", "refuse", "'decoder.up2.conv_transpose.weight' [2, 4, 3, 3, 3]")
    again("B_network.pt", ways + " submodule=decoder.up1",
          unused="decoder.up2.bias,decoder.up2.conv_transpose.bias,"
                 "decoder.up2.conv_transpose.weight,head.bias,head.weight,norm.bias,"
                 "norm.num_batches_tracked,norm.running_mean,norm.running_var,norm.weight,stem.bias,"
                 "stem.weight")
    again("B_network.pt", OPTIONS["C"] + " submodule=decoder.up2.conv_transpose", unused="*")
    again("B_network.pt", ways + " submodule=decoder", "refuse", "got 2 that may be")
    again("B_network.pt", ways + " submodule=head", "refuse", "need one of 'stem.weight'")
    keep("B_no_bias.pt", saved(OrderedDict(Block("B", bias=False).state_dict())), ways,
         word="no bias")
    keep("C_groups.pt", saved(OrderedDict(Block("C", groups=2).state_dict())),
         OPTIONS["C"] + " groups=2", unused="bias")
    for name, dtype in (("half", torch.float16), ("bfloat16", torch.bfloat16),
                        ("double", torch.float64)):
        keep(f"B_{name}.pt", saved(converted(b, dtype)), ways)
        keep(f"B_{name}.safetensors", safetensors.torch.save(dict(converted(b, dtype)),
                                                             {"format": "pt"}), ways)
    last = OrderedDict(b)
    last["conv_transpose.weight"] = last["conv_transpose.weight"].to(
        memory_format=torch.channels_last_3d)
    keep("B_channels_last.pt", saved(last), ways)
    keep("B_shared_storage.pt", saved(shared_views(b)), ways)
    keep("B_from_gpu.pt",
         rewrite(saved(b), lambda n, x: x.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:3")),
         ways)
    keep("B_deflated.pt", rewrite(saved(b), lambda n, x: x, zipfile.ZIP_DEFLATED), ways)
    keep("B_no_checksums.pt", without_checksums(b), ways, "refuse", "ignore_crc")
    again("B_no_checksums.pt", ways + " ignore_crc", word="checksums of the file were not checked")

    # ---- What is no state_dict, or holds what volup does not take ----
    keep("R_module.pt", saved(Block("B")), ways, "refuse", "'__main__.Block'")
    keep("R_runs.pt", saved({"state_dict": b, "x": Runs()}), ways, "refuse", "'posix.system'")
    keep("R_tensor.pt", saved(b["conv_transpose.weight"]), ways, "refuse", "a single tensor")
    keep("R_numbers.pt", saved({"epoch": 1}), ways, "refuse", "no tensors")
    keep("R_linear.pt", saved(nn.Linear(2, 3).state_dict()), ways, "refuse",
         "the file has 'weight' [3, 2] float32, 'bias' [3] float32")
    keep("R_weight_norm.pt", saved(torch.nn.utils.parametrizations.weight_norm(up("B")).state_dict()),
         ways, "refuse", "weight or spectral normalisation")
    keep("R_int8.pt", saved({"up.weight": torch.ones(4, 6, 3, 3, 3, dtype=torch.int8)}), ways,
         "refuse", "type of 'up.weight': got int8")
    keep("R_sparse.pt", saved({"up.weight": torch.ones(4, 6, 3, 3, 3).to_sparse()}), ways, "refuse",
         "_rebuild_sparse_tensor")
    keep("R_expanded.pt", saved({"up.weight": torch.ones(1).expand(4, 6, 3, 3, 3)}), ways, "refuse",
         "one for each of its elements")
    keep("R_empty_weight.pt", saved({"up.weight": torch.ones(0, 6, 3, 3, 3)}), ways, "refuse",
         "shape of 'up.weight' [0, 6, 3, 3, 3]")
    bad = OrderedDict(b)
    bad["conv_transpose.bias"] = torch.ones(7)
    keep("R_bias_shape.pt", saved(bad), ways, "refuse", "shape of 'conv_transpose.bias' [7] float32")
    wide = converted(b, torch.float64)
    wide["conv_transpose.weight"][0, 0, 0, 0, 0] = 1e300
    keep("R_overflow.pt", saved(wide), ways, "refuse", "1 beyond float32")
    keep("R_protocol4.pt", saved(b, pickle_protocol=4), ways, "refuse", "protocol 4")
    keep("R_legacy.pt", saved(b, _use_new_zipfile_serialization=False), ways, "kind",
         "a legacy torch.save file")
    keep("R_short_storage.pt",
         rewrite(saved(b), lambda n, x: x[:-4] if n.endswith("data/0") else x), ways, "refuse",
         "bytes for 648 elements of float32 in 'data/0'")
    keep("R_no_storage.pt",
         rewrite(saved(b), lambda n, x: None if n.endswith("data/0") else x), ways, "refuse",
         "nothing for 648 elements")
    keep("R_big_endian.pt",
         rewrite(saved(b), lambda n, x: b"big" if n.endswith("byteorder") else x), ways, "refuse",
         "byte order")
    keep("R_short_pickle.pt",
         rewrite(saved(b), lambda n, x: x[:-1] if n.endswith("data.pkl") else x), ways, "refuse",
         "the pickle data.pkl is not sound: it ends inside a value")

    # Values that are not finite load in the module: the library refuses them, or lets them pass.
    nan = OrderedDict((k, v.clone()) for k, v in b.items())
    nan["conv_transpose.weight"][1, 2, 0, 1, 2] = float("nan")
    nan["conv_transpose.bias"][3] = float("inf")
    keep("N_not_finite.pt", saved(nan), ways, "not_finite")

    # ---- safetensors ----
    keep("A.safetensors", safetensors.torch.save(dict(a), {"format": "pt"}), OPTIONS["A"],
         word="subtract is the file's 'bias'")
    keep("B.safetensors", safetensors.torch.save(dict(b)), ways, word="does not name a framework")
    keep("C.safetensors", safetensors.torch.save(dict(c), {"format": "pt"}), OPTIONS["C"],
         unused="bias")
    again("C.safetensors", "", "refuse", "'conv_transpose.weight' [2, 4, 3, 3, 3] float32")
    keep("B_network.safetensors", safetensors.torch.save(dict(net.state_dict()), {"format": "pt"}),
         ways, "refuse", "got 3 that may be the block's")
    again("B_network.safetensors", OPTIONS["C"] + " submodule=decoder.up2", unused="*")
    keep("R_flax.safetensors", safetensors.torch.save(dict(b), {"format": "flax"}), ways, "refuse",
         "got 'flax'")

    for letter in "ABC":
        write_io(letter, os.path.join(folder, f"io_{letter}.h5"))
    with open(os.path.join(folder, "expect.txt"), "w") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
