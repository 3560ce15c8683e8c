# SPDX-License-Identifier: Apache-2.0
"""Writes spellings/*.pt and spellings/expect.txt: small TorchScript modules, one for each way to
spell (or to miss) a model type that the TorchScript loader is held to. Needs PyTorch, NumPy and
h5py:

    python tests/load/make_spellings.py tests/load/spellings

A line of expect.txt: file, tab, "A" "B" or "C" with the constants that must be read, or "refuse";
tab, a word that the notes (or the refusal) must hold, or "-".
"""

import copy
import io
import os
import sys
import zipfile

import h5py
import torch
from torch import Tensor, nn
from typing import List, Optional, Tuple
import torch.nn.functional as F


def conv(**options):
    return nn.ConvTranspose3d(2, 3, 2, stride=2, **options)


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = conv()
        self.bias = nn.Parameter(torch.full((1, 1, 1, 1), 0.25))



# ---- A: logsumexp_swish_clamp -------------------------------------------------------------------
class AReciprocal(Base):
    def forward(self, x):
        l = torch.logsumexp(self.up(x), 1, keepdim=True)
        return torch.clamp(torch.sigmoid(3 + l) * l * (1 / 6) - self.bias, min=-1, max=1)


class AScalarSubtract(Base):
    def forward(self, x):
        l = torch.logsumexp(self.up(x), 1, keepdim=True)
        return F.hardtanh(l * torch.sigmoid(l + 3) / 6 - 0.5, -0.75, 0.5)


class AAddNegative(Base):
    def forward(self, x):
        l = torch.logsumexp(self.up(x), [-4], True)
        return (-self.bias + l * torch.sigmoid(l + 3) / 6).clip(-1, 1)


class AItem(Base):
    def forward(self, x):
        l = torch.logsumexp(self.up(x), 1, keepdim=True)
        return (l * torch.sigmoid(l + 3) / 6 - self.bias.item()).clamp(-1, 1)


class AExpand(Base):
    def forward(self, x):
        l = torch.logsumexp(self.up(x), 1, keepdim=True)
        s = l * torch.sigmoid(l + 3) / 6
        return (s - self.bias.view(1, 1, 1, 1, 1).expand_as(s)).clamp(-1, 1)


class AInPlace(Base):
    def forward(self, x):
        l = torch.logsumexp(self.up(x), 1, keepdim=True)
        g = (l + 3).sigmoid_()
        return g.mul_(l).div_(6).sub_(self.bias).clamp_(-1, 1)


class AClampInTwo(Base):
    def forward(self, x):
        l = torch.logsumexp(self.up(x), 1, keepdim=True)
        s = l * torch.sigmoid(l + 3) / 6 - self.bias
        return s.clamp_min(-1.0).clamp_max(1.0)


class AMinimumMaximum(Base):
    def __init__(self):
        super().__init__()
        self.register_buffer("low", torch.tensor(-1.0))
        self.register_buffer("high", torch.tensor([1.0]))

    def forward(self, x):
        l = torch.logsumexp(self.up(x), 1, keepdim=True)
        s = l * torch.sigmoid(l + 3) / 6 - self.bias
        return torch.minimum(torch.maximum(s, self.low), self.high)


class AUnsqueeze(Base):
    def forward(self, x):
        l = torch.logsumexp(self.up(x), 1).unsqueeze(1)
        return torch.clamp(l * torch.sigmoid(l + 3) / 6 - self.bias, -1, 1)


class AEarlyDivision(Base):
    def forward(self, x):
        l = torch.logsumexp(self.up(x), 1, keepdim=True)
        return torch.clamp(l * (torch.sigmoid(l + 3) / 6) - self.bias, -1, 1)


class ANoSubtract(Base):
    def forward(self, x):
        l = torch.logsumexp(self.up(x), 1, keepdim=True)
        return torch.clamp(l * torch.sigmoid(l + 3) / 6, -1, 1)


class AConstants(Base):
    def __init__(self):
        super().__init__()
        self.shift = 2.5
        self.divisor = 4

    def forward(self, x):
        l = torch.logsumexp(self.up(x), 1, keepdim=True)
        return torch.clamp(l * torch.sigmoid(l + self.shift) / self.divisor - self.bias, -0.5, 2)


class ANegatedDifference(Base):
    def forward(self, x):
        l = torch.logsumexp(self.up(x), 1, keepdim=True)
        return torch.clamp(-(self.bias - l * torch.sigmoid(l + 3) / 6), -1, 1)


class AShapeCheck(Base):
    def forward(self, x):
        assert x.dim() == 5
        if x.shape[1] != 2:
            raise ValueError("two channels")
        l = torch.logsumexp(self.up(x), 1, keepdim=True)
        return torch.clamp(l * torch.sigmoid(l + 3) / 6 - self.bias, -1, 1)


class ALoop(Base):
    def forward(self, x):
        l = torch.logsumexp(self.up(x), 1, keepdim=True)
        s = l
        for i in range(1):
            s = s * torch.sigmoid(l + 3)
        return torch.clamp(s / 6 - self.bias, -1, 1)


class ADetach(Base):
    def forward(self, x):
        y = self.up(x.contiguous()).float().detach().clone().contiguous()
        l = torch.logsumexp(y, 1, keepdim=True).to(torch.float32)
        return torch.clamp(l * torch.sigmoid(l + 3) / 6 - self.bias, -1, 1)


# ---- B: softmax_sigmoid -------------------------------------------------------------------------
class BFunctional(Base):
    def forward(self, x):
        return F.softmax(self.up(x), dim=-4).sigmoid()


class BDropout(Base):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.3)
        self.id = nn.Identity()

    def forward(self, x):
        y = self.id(F.dropout3d(self.drop(self.up(x)), 0.2, self.training))
        return torch.sigmoid_(torch.softmax(y, 1, dtype=torch.float32))


class BSequential(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(conv(bias=False), nn.Softmax(dim=1), nn.Sigmoid())

    def forward(self, x):
        return self.body(x)


class BFunctionalConvolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(2, 2, 1, 2, 3))
        self.b = nn.Parameter(torch.randn(4))

    def forward(self, x):
        y = F.conv_transpose3d(x, self.w, self.b, stride=(1, 2, 3), padding=(0, 0, 1),
                               output_padding=[0, 1, 2], groups=2, dilation=(3, 1, 1))
        return F.softmax(y, 1).sigmoid()


class BModuleList(Base):
    def __init__(self):
        super().__init__()
        self.steps = nn.ModuleList([nn.Softmax(1), nn.Sigmoid()])

    def forward(self, x):
        y = self.up(x)
        for step in self.steps:
            y = step(y)
        return y


class BNoGrad(Base):
    def forward(self, x):
        with torch.no_grad():
            y = torch.softmax(self.up(x), 1).sigmoid()
        return y


class BImplicitAxis(Base):
    def forward(self, x):
        return F.softmax(self.up(x)).sigmoid()


class BTypesOfTensors(Base):
    def forward(self, x):
        y = self.up(x.to(self.up.weight.dtype).to(self.up.weight.device))
        return F.softmax(y, 1).sigmoid().to(x.dtype)


# ---- C: add_hardswish ---------------------------------------------------------------------------
class CRelu6(Base):
    def forward(self, x, add):
        t = self.up(x) + add
        return t * (t * F.relu6(t + 3) / 6)


class CClampScaled(Base):
    def forward(self, x, add):
        t = add + self.up(x)
        return t * torch.clamp(t + 3, 0, 6) * (1.0 / 6) * t


class CHardsigmoid(Base):
    def forward(self, x, add):
        t = self.up(x) + add
        return t * (t * F.hardsigmoid(t))


class CHardsigmoidByHand(Base):
    def forward(self, x, add):
        t = self.up(x) + add
        return t * (t * torch.clamp((t + 3) / 6, 0, 1))


class CHardtanh(Base):
    def forward(self, x, add):
        t = self.up(x) + add
        return F.hardtanh(t + 3, 0.0, 6.0) / 6 * t * t


class CSquaresFirst(Base):
    def forward(self, x, add):
        t = self.up(x) + add
        return t * t * F.relu6(t + 3) / 6


class CPower(Base):
    def forward(self, x, add):
        t = self.up(x) + add
        return t ** 2 * F.hardsigmoid(t)


class CInPlace(Base):
    def __init__(self):
        super().__init__()
        self.act = nn.Hardswish(inplace=True)

    def forward(self, x, add):
        y = self.up(x)
        y += add
        t = y.clone()
        return t.mul_(self.act(y))


class CInPlaceAliased(Base):
    # hardswish_ changes y itself, so y * hardswish_(y) is the square of the hardswish.
    def forward(self, x, add):
        y = self.up(x)
        y += add
        return y * F.hardswish(y, inplace=True)


class CModule(Base):
    def __init__(self):
        super().__init__()
        self.act = nn.Hardswish()

    def forward(self, x, add):
        t = torch.add(self.up(x), add, alpha=1)
        return torch.mul(self.act(t), t)


class CReversed(Base):
    def forward(self, add, x):
        t = self.up(x) + add
        return t * F.hardswish(t)


class COptional(Base):
    def forward(self, x, add: Optional[Tensor] = None):
        t = self.up(x)
        if add is not None:
            t = t + add
        return t * F.hardswish(t)


class CTwice(Base):
    def forward(self, x, add):
        return (self.up(x) + add) * F.hardswish(add + self.up(x))


class CDifferentGate(Base):
    def forward(self, x, add):
        t = self.up(x) + add
        return t * (t * (t + 2).clamp(0, 4) / 4)


class CList(Base):
    def forward(self, x, add):
        a, b = (self.up(x), add)
        both = [a, b]
        t = both[0] + both[1]
        return t * F.hardswish(t)


# ---- Refused ------------------------------------------------------------------------------------
class RConvolutionAlone(Base):
    def forward(self, x):
        return self.up(x)


class RTwoConvolutions(Base):
    def __init__(self):
        super().__init__()
        self.again = nn.ConvTranspose3d(3, 3, 1)

    def forward(self, x):
        return torch.sigmoid(torch.softmax(self.again(self.up(x)), 1))


class RBatchNorm(Base):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm3d(3)

    def forward(self, x):
        return torch.sigmoid(torch.softmax(self.norm(self.up(x)), 1))


class RChannelBias(Base):
    def __init__(self):
        super().__init__()
        self.other = nn.Parameter(torch.randn(3, 1, 1, 1))

    def forward(self, x, add):
        t = self.up(x) + self.other + add
        return t * F.hardswish(t)


class RPerChannelSubtract(Base):
    def __init__(self):
        super().__init__()
        self.other = nn.Parameter(torch.randn(3, 1, 1, 1))

    def forward(self, x):
        l = torch.logsumexp(self.up(x), 1, keepdim=True)
        return torch.clamp(l * torch.sigmoid(l + 3) / 6 - self.other, -1, 1)


class RNoKeepdim(Base):
    def forward(self, x):
        l = torch.logsumexp(self.up(x), 1)
        return torch.clamp(l * torch.sigmoid(l + 3) / 6 - 0.5, -1, 1)


class RHardswishGate(Base):
    def forward(self, x):
        l = torch.logsumexp(self.up(x), 1, keepdim=True)
        return torch.clamp(F.hardswish(l) - self.bias, -1, 1)


class RNoClamp(Base):
    def forward(self, x):
        l = torch.logsumexp(self.up(x), 1, keepdim=True)
        return l * torch.sigmoid(l + 3) / 6 - self.bias


class RHardswishOnce(Base):
    def forward(self, x, add):
        return F.hardswish(self.up(x) + add)


class RHardswishCubed(Base):
    def forward(self, x, add):
        t = self.up(x) + add
        return t * t * F.hardswish(t)


class RAddTwice(Base):
    def forward(self, x, add):
        t = self.up(x) + 2 * add
        return t * F.hardswish(t)


class RAddX(Base):
    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose3d(2, 2, 1)

    def forward(self, x):
        t = self.up(x) + x
        return t * F.hardswish(t)


class RUnusedArgument(Base):
    def forward(self, x, add):
        return torch.sigmoid(torch.softmax(self.up(x), 1))


class RScaledInput(Base):
    def forward(self, x):
        return torch.sigmoid(torch.softmax(self.up(x * 2), 1))


class RScaledWeight(Base):
    def forward(self, x):
        y = F.conv_transpose3d(x, self.up.weight * 2, self.up.bias, stride=2)
        return torch.sigmoid(torch.softmax(y, 1))


class RConvolution2d(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose2d(2, 3, 2)

    def forward(self, x):
        return torch.sigmoid(torch.softmax(self.up(x), 1))


class RPlainConvolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Conv3d(2, 3, 2)

    def forward(self, x):
        return torch.sigmoid(torch.softmax(self.up(x), 1))


class RTuple(Base):
    def forward(self, x):
        p = torch.softmax(self.up(x), 1)
        return torch.sigmoid(p), p


class RBranchOnData(Base):
    def forward(self, x):
        y = self.up(x)
        if bool(y.sum() > 0):
            y = y * 2
        return torch.sigmoid(torch.softmax(y, 1))


class RTrainingDropout(BDropout):
    pass


class RInputInPlace(Base):
    def forward(self, x, add):
        t = add.add_(self.up(x))
        return t * F.hardswish(t)


class RWeightInPlace(Base):
    def forward(self, x):
        self.up.weight.mul_(2)
        return torch.sigmoid(torch.softmax(self.up(x), 1))


class RViewInPlace(Base):
    def forward(self, x):
        y = self.up(x)
        y[:, 0].add_(1)
        return torch.sigmoid(torch.softmax(y, 1))


class RStaleView(Base):
    def forward(self, x, add):
        y = self.up(x)
        v = y.view(y.shape)
        y.add_(add)
        return v * F.hardswish(y)


class ROutputSize(Base):
    def forward(self, x):
        y = self.up(x, output_size=[9, 9, 9])
        return torch.sigmoid(torch.softmax(y, 1))


class RSoftmaxTwice(Base):
    def forward(self, x):
        return torch.softmax(torch.sigmoid(self.up(x)), 1)


class RIntegerDivision(Base):
    def forward(self, x):
        l = torch.logsumexp(self.up(x), 1, keepdim=True)
        s = torch.div(l * torch.sigmoid(l + 3), 6, rounding_mode="floor")
        return torch.clamp(s - self.bias, -1, 1)


class RHalfBetween(Base):
    def forward(self, x):
        return torch.sigmoid(torch.softmax(self.up(x).half(), 1)).float()


class RLogsumexpByHand(Base):
    def forward(self, x):
        l = torch.log(torch.sum(torch.exp(self.up(x)), 1, keepdim=True))
        return torch.clamp(l * torch.sigmoid(l + 3) / 6 - self.bias, -1, 1)


class RStack(Base):
    def forward(self, x, add):
        t = torch.stack([self.up(x), add]).sum(0)
        return t * F.hardswish(t)


class RChunk(Base):
    def forward(self, x):
        a, b, c = self.up(x).chunk(3, 1)
        return torch.cat([a, b, c], 1).softmax(1).sigmoid()


class RSetState(Base):
    def __init__(self):
        super().__init__()
        self.big = 3

    @torch.jit.export
    def __getstate__(self):
        return (self.up.weight, self.training)

    @torch.jit.export
    def __setstate__(self, state: Tuple[Tensor, bool]):
        self.training = state[1]

    def forward(self, x):
        return torch.sigmoid(torch.softmax(self.up(x), 1))


A = "A 3 6 {} -1 1"
BIAS = A.format(0.25)
BOTH = ("scripted", "traced")
# ---- Later than the rest: what comes first must not draw other weights ---------------------------
class ASigmoidByHand(Base):
    def forward(self, x):
        l = torch.logsumexp(self.up(x), 1, keepdim=True)
        return torch.clamp(l / (1 + torch.exp(-(l + 3))) / 6 - self.bias, -1, 1)


class BSigmoidByHand(Base):
    def forward(self, x):
        return 1 / (torch.exp(-torch.softmax(self.up(x), 1)) + 1.0)


class BReciprocal(Base):
    def forward(self, x):
        return torch.reciprocal((-F.softmax(self.up(x), -4)).exp() + 1)


class BCompiled(nn.Module):
    """As torch.compile and DataParallel wrap a module."""

    def __init__(self):
        super().__init__()
        self._orig_mod = nn.Sequential()
        self._orig_mod.add_module("module", BFunctional())

    def forward(self, x):
        return self._orig_mod(x)


class CScalarTensors(Base):
    def __init__(self):
        super().__init__()
        self.three = torch.tensor(3.0)
        self.register_buffer("six", torch.tensor([6.0]))

    def forward(self, x, add):
        t = self.up(x).add_(add)
        return t.mul(torch.clip(self.three + t, 0, 6).div(self.six)).mul(t)


class RSigmoidOfSquare(Base):
    def forward(self, x):
        return 1 / (1 + torch.exp(-torch.softmax(self.up(x), 1) ** 2))


class RExponential(Base):
    def forward(self, x):
        return torch.exp(torch.softmax(self.up(x), 1))


class RNetwork(nn.Module):
    """A block among other layers: refused, but it can be picked out."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv3d(2, 2, 1)
        self.decoder = nn.Sequential(BFunctional(), nn.Identity())
        self.tail = nn.Conv3d(3, 2, 1)

    def forward(self, x):
        return self.tail(self.decoder(self.stem(x)))


CASES = [
    (AReciprocal, BOTH, BIAS, "multiplies by"),
    (AScalarSubtract, BOTH, "A 3 6 0.5 -0.75 0.5", "-"),
    (AAddNegative, BOTH, BIAS, "-"),
    (AItem, ("scripted",), BIAS, "-"),
    (AExpand, BOTH, BIAS, "-"),
    (AInPlace, BOTH, BIAS, "-"),
    (AClampInTwo, BOTH, BIAS, "-"),
    (AMinimumMaximum, BOTH, BIAS, "-"),
    (AUnsqueeze, BOTH, BIAS, "-"),
    (AEarlyDivision, BOTH, BIAS, "before its last factor"),
    (ANoSubtract, BOTH, A.format(0), "-"),
    (AConstants, BOTH, "A 2.5 4 0.25 -0.5 2", "-"),
    (ANegatedDifference, BOTH, BIAS, "-"),
    (AShapeCheck, ("scripted",), BIAS, "check at run time"),
    (ALoop, ("scripted",), BIAS, "-"),
    (ADetach, BOTH, BIAS, "-"),
    (BFunctional, BOTH + ("frozen",), "B", "-"),
    (BDropout, BOTH, "B", "-"),
    (BSequential, BOTH + ("frozen",), "B", "-"),
    (BFunctionalConvolution, BOTH, "B", "-"),
    (BModuleList, BOTH, "B", "-"),
    (BNoGrad, BOTH, "B", "-"),
    (BImplicitAxis, ("scripted",), "B", "-"),
    (BTypesOfTensors, BOTH, "B", "-"),
    (CRelu6, BOTH, "C 3 6 0 6", "-"),
    (CList, BOTH, "C 3 6 0 6", "-"),
    (CClampScaled, BOTH, "C 3 6 0 6", "multiplies by"),
    (CHardsigmoid, BOTH, "C 3 6 0 6", "-"),
    (CHardsigmoidByHand, BOTH, "C 3 6 0 6", "before the clamp"),
    (CHardtanh, BOTH, "C 3 6 0 6", "-"),
    (CSquaresFirst, BOTH, "C 3 6 0 6", "overflows"),
    (CPower, BOTH, "C 3 6 0 6", "overflows"),
    (CInPlace, BOTH, "C 3 6 0 6", "-"),
    (CInPlaceAliased, BOTH, "refuse", "aten::mul"),
    (CModule, BOTH, "C 3 6 0 6", "-"),
    (CReversed, BOTH, "C 3 6 0 6", "first"),
    (COptional, ("scripted",), "C 3 6 0 6", "-"),
    (CTwice, BOTH, "refuse", "two"),
    (CDifferentGate, BOTH, "C 2 4 0 4", "-"),
    (RConvolutionAlone, BOTH, "refuse", "more than the convolution"),
    (RTwoConvolutions, BOTH, "refuse", "not two"),
    (RBatchNorm, BOTH, "refuse", "aten::batch_norm"),
    (RChannelBias, BOTH, "refuse", "'other'"),
    (RPerChannelSubtract, BOTH, "refuse", "aten::sub"),
    (RNoKeepdim, BOTH, "refuse", "keeps the axis"),
    (RHardswishGate, BOTH, "refuse", "aten::hardswish"),
    (RNoClamp, BOTH, "refuse", "then a clamp"),
    (RHardswishOnce, BOTH, "refuse", "t * hardswish(t)"),
    (RHardswishCubed, BOTH, "refuse", "aten::mul"),
    (RAddTwice, BOTH, "refuse", "aten::mul"),
    (RAddX, BOTH, "refuse", "aten::add"),
    (RUnusedArgument, BOTH, "refuse", "'add'"),
    (RScaledInput, BOTH, "refuse", "aten::mul"),
    (RScaledWeight, BOTH, "refuse", "aten::mul"),
    (RConvolution2d, ("scripted",), "refuse", "aten::conv_transpose2d"),
    (RPlainConvolution, BOTH, "refuse", "onv"),
    (RTuple, BOTH, "refuse", "2 values"),
    (RBranchOnData, ("scripted",), "refuse", "aten::sum"),
    (RTrainingDropout, ("training",), "refuse", "training mode"),
    (RInputInPlace, BOTH, "refuse", "changes an input"),
    (RWeightInPlace, ("scripted",), "refuse", "changes a parameter"),
    (RViewInPlace, BOTH, "refuse", "aten::add_"),
    (RStaleView, BOTH, "refuse", "aten::view"),
    (ROutputSize, ("scripted",), "refuse", "aten::append"),
    (RSoftmaxTwice, BOTH, "refuse", "aten::sigmoid"),
    (RIntegerDivision, BOTH, "refuse", "rounds"),
    (RHalfBetween, BOTH, "refuse", "another type"),
    (RLogsumexpByHand, BOTH, "refuse", "aten::exp"),
    (RStack, BOTH, "refuse", "aten::stack"),
    (RChunk, BOTH, "refuse", "aten::chunk"),
    (RSetState, ("scripted",), "refuse", "__"),
]


LATER_CASES = [
    (ASigmoidByHand, BOTH, BIAS, "-"),
    (BSigmoidByHand, BOTH, "B", "-"),
    (BReciprocal, BOTH, "B", "-"),
    (BCompiled, BOTH, "B", "-"),
    (BFunctional, ("optimized",), "B", "-"),
    (CModule, ("optimized",), "C 3 6 0 6", "-"),
    (CScalarTensors, BOTH, "C 3 6 0 6", "-"),
    (RSigmoidOfSquare, BOTH, "refuse", "need sigmoid of the softmax"),
    (RExponential, BOTH, "refuse", "aten::exp"),
]


def inputs_of(module):
    x = torch.randn(1, 2, 3, 3, 3)
    if isinstance(module, RConvolution2d):
        return (torch.randn(1, 2, 3, 3),)
    if isinstance(module, CReversed):
        return (torch.randn(1, 3, 6, 6, 6), x)
    names = module.forward.__code__.co_varnames[: module.forward.__code__.co_argcount]
    return (x, torch.randn(1, 3, 6, 6, 6)) if "add" in names else (x,)


def rewrite(data, change):
    """The archive again, each entry through change(name, bytes) -> bytes or None."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        with zipfile.ZipFile(out, "w") as target:
            for entry in source.infolist():
                content = change(entry.filename, source.read(entry))
                if content is not None:
                    info = zipfile.ZipInfo(entry.filename, (1980, 1, 1, 0, 0, 0))
                    target.writestr(info, content, entry.compress_type)
    return out.getvalue()


def text_item(text):
    return b"X" + len(text).to_bytes(4, "little") + text


def from_device(data, device):
    def change(name, content):
        if name.endswith("data.pkl"):
            return content.replace(text_item(b"cpu"), text_item(device))
        return content

    return rewrite(data, change)


def channels_last(module):
    module.up.to(memory_format=torch.channels_last_3d)
    return module


def saved(module):
    buffer = io.BytesIO()
    torch.jit.save(module, buffer)
    return buffer.getvalue()


def write_io(block, path):
    """An input and the block's float64 output, for `volup check`."""
    x = torch.randn(2, 2, 3, 4, 5)
    with torch.no_grad():
        y = copy.deepcopy(block).double()(x.double())
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=x.numpy())
        file.create_dataset("y", data=y.numpy())
        file.attrs["tolerance"] = 1e-5


def script_of(module, way):
    module.train(way == "training")
    if way == "traced":
        with torch.no_grad():
            return torch.jit.trace(module, inputs_of(module), check_trace=False)
    script = torch.jit.script(module)
    if way == "frozen":
        return torch.jit.freeze(script)
    return torch.jit.optimize_for_inference(script) if way == "optimized" else script


def with_views(module):
    """Weight and bias as strided views of one storage, as slices of a larger tensor are."""
    large = torch.randn(2, 6, 3, 2, 2)
    module.up.weight = nn.Parameter(large[:, ::2, 1:])
    module.up.bias = nn.Parameter(large.view(-1)[5:26:10])
    assert not module.up.weight.is_contiguous()
    return module


def main(folder):
    torch.manual_seed(5)
    os.makedirs(folder, exist_ok=True)
    lines = []

    def keep(name, data, expect, word):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)
        lines.append(f"{name}\t{expect}\t{word}")

    def keep_all(cases):
        for cls, ways, expect, word in cases:
            for way in ways:
                keep(f"{cls.__name__}_{way}.pt", saved(script_of(cls(), way)), expect, word)

    keep_all(CASES)

    plain = torch.jit.script(BFunctional().eval())
    for name, change in (
        ("double", lambda m: m.double()),
        ("half", lambda m: m.half()),
        ("bfloat16", lambda m: m.bfloat16()),
        ("channels_last", channels_last),
    ):
        keep(f"weights_{name}.pt", saved(torch.jit.script(change(BFunctional()).eval())), "B", "-")
    keep("device_cuda3.pt", from_device(saved(plain), b"cuda:3"), "B", "-")
    overflow = BFunctional().double().eval()
    overflow.up.weight.data[0, 0, 0, 0, 0] = 1e300
    keep("weights_overflow.pt", saved(torch.jit.script(overflow)), "refuse", "beyond float32")
    nan = BFunctional().eval()
    nan.up.weight.data[0, 0, 0, 0, 0] = float("nan")
    keep("weights_nan.pt", saved(torch.jit.script(nan)), "B", "-")

    buffer = io.BytesIO()
    torch.save(BFunctional(), buffer)
    keep("other_pickled_module.pt", buffer.getvalue(), "refuse", "pickled")
    buffer = io.BytesIO()
    torch.save(BFunctional().state_dict(), buffer, _use_new_zipfile_serialization=False)
    keep("other_legacy_pickle.pt", buffer.getvalue(), "refuse", "before PyTorch 1.6")
    keep("other_no_constants.pt",
         rewrite(saved(plain), lambda n, c: None if n.endswith("constants.pkl") else c),
         "refuse", "constants.pkl")
    keep("other_big_endian.pt",
         rewrite(saved(plain), lambda n, c: b"big" if n.endswith("byteorder") else c),
         "refuse", "byte order")
    keep("other_short_tensor.pt",
         rewrite(saved(plain), lambda n, c: c[:-4] if n.endswith("data/0") else c),
         "refuse", "data/0")
    keep("other_broken_pickle.pt",
         rewrite(saved(plain), lambda n, c: c[:-1] if n.endswith("/data.pkl") else c),
         "refuse", "data.pkl")
    keep("other_broken_code.pt",
         rewrite(saved(plain), lambda n, c: c.replace(b"return", b"retrun") if n.endswith(".py") else c),
         "refuse", "libtorch")
    network = RNetwork().eval()
    write_io(network.decoder, os.path.join(folder, "RNetwork_io.h5"))
    for way in ("scripted", "traced", "frozen"):
        script = torch.jit.script(network)
        if way == "traced":
            script = torch.jit.trace(network, inputs_of(network))
        if way == "frozen":
            script = torch.jit.freeze(script)
        keep(f"RNetwork_{way}.pt", saved(script), "refuse",
             "aten::" if way == "frozen" else "--submodule")
    keep_all(LATER_CASES)
    keep("weights_views.pt", saved(torch.jit.script(with_views(BFunctional()).eval())), "B", "-")
    with open(os.path.join(folder, "expect.txt"), "w") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
