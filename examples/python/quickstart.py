# SPDX-License-Identifier: Apache-2.0
"""The quickstart in Python, by way of the C ABI: quickstart.py LIBRARY, in a folder with model.h5.

tools/volup_ctypes.py takes PyTorch tensors as they are; this one needs ctypes alone.
"""

import ctypes
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import volup_ctypes  # noqa: E402


def view(values, shape):
    """A dense fp32 tensor in host memory."""
    return volup_ctypes.Tensor(ctypes.sizeof(volup_ctypes.Tensor), ctypes.addressof(values),
                               volup_ctypes.DTYPES["fp32"], volup_ctypes.DEVICES["cpu"], 0, 5,
                               volup_ctypes.Shape5(*shape), volup_ctypes.Shape5())


model = volup_ctypes.Library(sys.argv[1]).load("model.h5")
shape = (1, 3, 1, 1, 2)
x, y = (ctypes.c_float * 6)(1, 2, 3, 4, 5, 6), (ctypes.c_float * 3)()
model.session().run(view(x, shape), None, view(y, model.output_shape(shape)))
print(*(f"{value:g}" for value in y))
