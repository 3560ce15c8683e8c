# SPDX-License-Identifier: Apache-2.0
"""Makes the three reference models and their small inputs with float64 outputs.

Writes, beside this file, for each block NAME of blocks.py:
  NAME.pt      TorchScript, scripted, full channel counts, seeded weights
  NAME.io.h5   x, add (where taken), y in float64, and what the numbers below were
NAME.h5 is made from NAME.pt by `volup convert NAME.pt NAME.h5`, not here.

Default-initialised weights give outputs so even that no accuracy fault can show in them. So weights
and data are chosen here for a wide spread, and the script asserts that the tolerance it writes
separates: fp32 products pass it at least 4 times over, plain TF32 products (operands rounded to
10 bits of mantissa, fp32 sums) miss it at least 4 times over.

Needs PyTorch 2.11, NumPy and h5py. Run: PYTHONHASHSEED=0 python make_models.py [--out DIR]
(without the fixed hash seed the tensors are the same, but PyTorch orders names in a .pt at random).
"""

import argparse
import pathlib

import h5py
import numpy as np
import torch
import torch._sources
import torch.jit.frontend

import blocks

SEED = {"A": 58, "B": 49, "C": 26}
TOLERANCE = {"A": 1e-5, "B": 1e-5, "C": 1e-4}  # |got - y| <= tolerance + tolerance * |y|
MARGIN = 4.0


def use_relative_source_names():
    """A scripted file records where each source line came from. Keep the part of the path that does
    not depend on where PyTorch and this script are installed, so that the bytes do not either."""
    plain = torch._sources.get_source_lines_and_file

    def relative(*args, **kwargs):
        lines, first, path = plain(*args, **kwargs)
        parts = pathlib.PurePath(path).parts
        start = parts.index("torch") if "torch" in parts else len(parts) - 1
        return lines, first, "/".join(parts[start:])

    torch._sources.get_source_lines_and_file = relative
    torch.jit.frontend.get_source_lines_and_file = relative


def make_module(block, rng):
    """Weights whose logits spread: B's softmax and A's gate are steep only there."""

    def normal(parameter, mean, std):
        value = rng.normal(mean, std, tuple(parameter.shape)).astype(np.float32)
        parameter.data.copy_(torch.from_numpy(value))

    module = block.module()
    conv = module.conv_transpose
    if block.letter == "A":
        normal(conv.weight, 0.0, 1.1)
        normal(conv.bias, -3.0, 1.5)  # down, so that l + 3 crosses the bend of the sigmoid
        module.bias.data.fill_(0.6)  # centres the outputs between the clamp's bounds
    elif block.letter == "B":
        normal(conv.weight, 0.0, 0.6)
        normal(conv.bias, 0.0, 1.0)
    else:
        normal(conv.weight, 0.0, 0.1)
        normal(conv.bias, 0.0, 1.0)
        normal(module.bias, 0.0, 100.0)  # never used: an engine that applies it is far off
    return module.eval()


def make_inputs(block, module, rng):
    x = rng.normal(0.0, 1.0, block.small)
    if block.letter == "C":  # voxels from 1/64 to 64: t from inside hardswish's bend to far past
        n, _, d, h, w = block.small
        x = x * np.exp2(rng.uniform(-6.0, 6.0, (n, 1, d, h, w)))
    inputs = [torch.from_numpy(x.astype(np.float32))]
    if block.takes_add:
        shape = tuple(module.conv_transpose(inputs[0]).shape)
        inputs.append(torch.from_numpy(rng.normal(0.0, 2.0, shape).astype(np.float32)))
    return inputs


def round_to_tf32(tensor):
    """Round to nearest, ties to even, at 10 bits of mantissa."""
    bits = tensor.numpy().view(np.uint32).astype(np.uint64)
    bits = (bits + 0x0FFF + ((bits >> 13) & 1)) & 0xFFFFE000
    return torch.from_numpy(bits.astype(np.uint32).view(np.float32))


class ChainConv(torch.nn.Module):
    """Stands in for a ConvTranspose3d: the scatter definition, one product after the other, sums in
    fp32. With round_operands=True the products are plain TF32."""

    def __init__(self, conv, round_operands):
        super().__init__()
        self.conv, self.rounded = conv, round_operands

    def forward(self, x):
        conv, weight = self.conv, self.conv.weight.detach()
        if self.rounded:
            x, weight = round_to_tf32(x), round_to_tf32(weight)
        step, pad, extra = conv.stride[0], conv.padding[0], conv.output_padding[0]
        sizes = [(i - 1) * step + 3 + extra for i in x.shape[2:]]  # before the padding is cut off
        out = torch.zeros(x.shape[0], weight.shape[1], *sizes)
        out += conv.bias.detach().view(1, -1, 1, 1, 1)
        for c in range(weight.shape[0]):
            for tap in np.ndindex(*weight.shape[2:]):
                where = [slice(j, j + (i - 1) * step + 1, step) for j, i in zip(tap, x.shape[2:])]
                product = x[:, c : c + 1] * weight[c][(slice(None), *tap)].view(1, -1, 1, 1, 1)
                out[(slice(None), slice(None), *where)] += product
        return out[(slice(None), slice(None), *[slice(pad, n - pad) for n in sizes])]


def with_conv(module, conv, inputs):
    plain = module.conv_transpose
    module.conv_transpose = conv
    out = module(*inputs)
    module.conv_transpose = plain
    return out


def misfit(got, y, tolerance):
    """Largest error, and the largest share of the tolerance that an error takes."""
    err = (got.double() - y).abs()
    return err.max().item(), (err / (tolerance * (1 + y.abs()))).max().item()


@torch.no_grad()
def make(block, out):
    rng = np.random.Generator(np.random.PCG64(SEED[block.letter]))
    module = make_module(block, rng)
    inputs = make_inputs(block, module, rng)
    conv, tolerance = module.conv_transpose, TOLERANCE[block.letter]

    double = block.module().double()
    double.load_state_dict({k: v.double() for k, v in module.state_dict().items()})
    doubles = [t.double() for t in inputs]
    y, logits = double(*doubles), double.conv_transpose(doubles[0])

    chain = misfit(with_conv(module, ChainConv(conv, False), inputs), y, tolerance)
    fp32 = max(chain, misfit(module(*inputs), y, tolerance), key=lambda pair: pair[1])
    tf32 = misfit(with_conv(module, ChainConv(conv, True), inputs), y, tolerance)
    facts = {
        "seed": SEED[block.letter],
        "logit_std": logits.std().item(),
        "fp32_max_abs_err": fp32[0],
        "fp32_share_of_tolerance": fp32[1],
        "tf32_max_abs_err": tf32[0],
        "tf32_share_of_tolerance": tf32[1],
        "y_min": y.min().item(),
        "y_max": y.max().item(),
        "clamped_share": (y.abs() == 1).double().mean().item() if block.letter == "A" else 0.0,
    }
    print(block.letter, ", ".join(f"{k} {v:.4g}" for k, v in facts.items()))

    assert torch.isfinite(y).all() and y.std() > 0
    assert facts["logit_std"] >= {"A": 3.0, "B": 5.0, "C": 1.0}[block.letter]
    assert facts["clamped_share"] < 0.05
    assert facts["fp32_share_of_tolerance"] <= 1 / MARGIN, "fp32 must pass with room"
    assert facts["tf32_share_of_tolerance"] >= MARGIN, "plain TF32 must fail"

    torch.jit.script(module).save(str(out / f"{block.name}.pt"))
    with h5py.File(out / f"{block.name}.io.h5", "w", libver="earliest") as file:
        for name, tensor in zip(("x", "add"), inputs):
            file.create_dataset(name, data=tensor.numpy(), track_times=False)
        file.create_dataset("y", data=y.numpy(), track_times=False)
        file.attrs["expect"] = "run"
        file.attrs["note"] = "wide logits: fp32 passes this tolerance, plain TF32 products do not"
        file.attrs["tolerance"] = tolerance  # absolute and relative
        for key, value in facts.items():
            file.attrs[key] = value


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = pathlib.Path(__file__).resolve().parent
    parser.add_argument("--out", type=pathlib.Path, default=here, help="directory to write to")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # one order of sums, so that the printed errors repeat
    use_relative_source_names()
    for block in blocks.BLOCKS:
        make(block, out)


if __name__ == "__main__":
    main()
