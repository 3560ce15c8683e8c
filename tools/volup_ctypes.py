# SPDX-License-Identifier: Apache-2.0
"""volup from Python by way of its C ABI: ctypes only, nothing to compile.

Covers what loading a model and running it takes, on PyTorch tensors or anything else that has
data_ptr(), shape, stride(), dtype and device as they have. The C header says what each call means.

    import torch, volup_ctypes
    volup = volup_ctypes.Library()
    model = volup.load("models/softmax_sigmoid.h5")
    x = torch.randn(2, 32, 4, 5, 6)
    out = torch.empty(model.output_shape(x.shape))
    model.session(device="cpu").run(x, None, out)  # waits

    session = model.session(device="cuda", precision="tf32")
    session.prepare(x.shape)
    session.enqueue(x.cuda(), None, out_on_gpu, torch.cuda.current_stream().cuda_stream)
"""

import ctypes
import json
import os
import pathlib
from ctypes import POINTER, byref, c_char_p, c_float, c_int32, c_int64, c_size_t, c_void_p

DEVICES = {"auto": 0, "cpu": 1, "cuda": 2}
PRECISIONS = {"fp32": 0, "tf32": 1, "bf16": 2, "fp16": 3}
DTYPES = {"fp32": 0, "fp16": 1, "bf16": 2}
_TORCH_DTYPES = {"torch.float32": 0, "torch.float16": 1, "torch.bfloat16": 2}

Shape5 = c_int64 * 5
Axes3 = c_int64 * 3


class Geometry(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("in_channels", c_int64), ("out_channels", c_int64),
                ("groups", c_int64), ("kernel", Axes3), ("stride", Axes3),
                ("padding_begin", Axes3), ("padding_end", Axes3), ("output_padding", Axes3),
                ("dilation", Axes3)]


class Epilogue(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("kind", c_int32), ("shift", c_float),
                ("divisor", c_float), ("subtract", c_float), ("clamp_min", c_float),
                ("clamp_max", c_float)]


class Problem(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("geometry", POINTER(Geometry)), ("epilogue", c_int32),
                ("precision", c_int32), ("io_dtype", c_int32), ("input", Shape5)]


class SessionOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("device_type", c_int32), ("device_index", c_int32),
                ("precision", c_int32), ("io_dtype", c_int32), ("threads", c_int32),
                ("workspace_limit", c_size_t), ("allocate", c_void_p), ("free", c_void_p),
                ("context", c_void_p), ("kernel", c_char_p)]


class Tensor(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("data", c_void_p), ("dtype", c_int32),
                ("device_type", c_int32), ("device_index", c_int32), ("rank", c_int32),
                ("shape", Shape5), ("strides", Shape5)]


# Every function used here: what it returns, what it takes.
_STATUS = c_int32
_SIGNATURES = {
    "volup_version": (c_int32, []),
    "volup_status_name": (c_char_p, [_STATUS]),
    "volup_last_error": (c_char_p, []),
    "volup_model_load": (_STATUS, [c_char_p, c_void_p, POINTER(c_void_p)]),
    "volup_model_geometry": (_STATUS, [c_void_p, POINTER(Geometry)]),
    "volup_model_epilogue": (_STATUS, [c_void_p, POINTER(Epilogue)]),
    "volup_model_weights": (
        _STATUS, [c_void_p, POINTER(POINTER(c_float)), POINTER(POINTER(c_float))]),
    "volup_model_describe": (_STATUS, [c_void_p, POINTER(c_char_p)]),
    "volup_model_output_shape": (_STATUS, [c_void_p, Shape5, Shape5]),
    "volup_model_destroy": (None, [c_void_p]),
    "volup_problem_print": (_STATUS, [POINTER(Problem), c_char_p, c_size_t]),
    "volup_session_create": (_STATUS, [c_void_p, POINTER(SessionOptions), POINTER(c_void_p)]),
    "volup_session_prepare": (_STATUS, [c_void_p, Shape5]),
    "volup_session_describe": (_STATUS, [c_void_p, Shape5, POINTER(c_char_p)]),
    "volup_session_run": (_STATUS, [c_void_p] + 3 * [POINTER(Tensor)]),
    "volup_session_enqueue": (_STATUS, [c_void_p] + 3 * [POINTER(Tensor)] + [c_void_p]),
    "volup_session_destroy": (None, [c_void_p]),
}


class VolupError(RuntimeError):
    """A call failed: status is the number from volup.h, the text is volup_last_error()."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


def tensor_view(tensor):
    """The C view of a tensor; None stays None. The tensor must outlive its use."""
    if tensor is None or isinstance(tensor, Tensor):
        return tensor
    if len(tensor.shape) != 5:
        raise ValueError(f"tensor: got rank {len(tensor.shape)}, need 5 (N, C, D, H, W)")
    if str(tensor.dtype) not in _TORCH_DTYPES:
        raise ValueError(f"tensor: got {tensor.dtype}, need one of {', '.join(_TORCH_DTYPES)}")
    return Tensor(ctypes.sizeof(Tensor), tensor.data_ptr(), _TORCH_DTYPES[str(tensor.dtype)],
                  DEVICES[tensor.device.type], tensor.device.index or 0, 5,
                  Shape5(*tensor.shape), Shape5(*tensor.stride()))


class Library:
    """libvolup.so, loaded. path: the file; default: the environment's VOLUP_LIBRARY, then a build
    directory of this checkout, then the system's search path."""

    def __init__(self, path=None):
        checkout = pathlib.Path(__file__).resolve().parent.parent
        builds = sorted(checkout.glob("build*/**/libvolup.so"))
        path = path or os.environ.get("VOLUP_LIBRARY") or (builds or ["libvolup.so.1"])[0]
        self._c = ctypes.CDLL(str(path))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self._c, name)
            function.restype, function.argtypes = result, arguments

    @property
    def version(self):
        number = self._c.volup_version()
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def call(self, name, *arguments):
        status = getattr(self._c, name)(*arguments)
        if status:
            raise VolupError(status, self._c.volup_last_error().decode())

    def destroy(self, name, handle):
        if handle:
            getattr(self._c, name)(handle)

    def load(self, path):
        """The model in a file: volup's HDF5 or TorchScript."""
        handle = c_void_p()
        self.call("volup_model_load", os.fsencode(path), None, byref(handle))
        return Model(self, handle)


class Model:
    """Immutable; sessions made from it may outlive it."""

    def __init__(self, library, handle):
        self._library, self._handle = library, handle

    def __del__(self):
        self._library.destroy("volup_model_destroy", self._handle)

    def geometry(self):
        out = Geometry(ctypes.sizeof(Geometry))
        self._library.call("volup_model_geometry", self._handle, byref(out))
        return out

    def epilogue(self):
        out = Epilogue(ctypes.sizeof(Epilogue))
        self._library.call("volup_model_epilogue", self._handle, byref(out))
        return out

    def weights(self):
        """(weight, bias) as flat ctypes float arrays over the model's memory; bias may be None."""
        weight, bias, g = POINTER(c_float)(), POINTER(c_float)(), self.geometry()
        self._library.call("volup_model_weights", self._handle, byref(weight), byref(bias))
        count = g.in_channels * (g.out_channels // g.groups) * g.kernel[0] * g.kernel[1]
        view = ctypes.cast(weight, POINTER(c_float * (count * g.kernel[2]))).contents
        return view, ctypes.cast(bias, POINTER(c_float * g.out_channels)).contents if bias else None

    def describe(self):
        text = c_char_p()
        self._library.call("volup_model_describe", self._handle, byref(text))
        return json.loads(text.value)

    def output_shape(self, shape):
        out = Shape5()
        self._library.call("volup_model_output_shape", self._handle, Shape5(*shape), out)
        return tuple(out)

    def problem(self, shape, precision="fp32", io="fp32"):
        """The problem string of this model on an input of this shape."""
        geometry, text = self.geometry(), ctypes.create_string_buffer(256)
        problem = Problem(ctypes.sizeof(Problem), ctypes.pointer(geometry), self.epilogue().kind,
                          PRECISIONS[precision], DTYPES[io], Shape5(*shape))
        self._library.call("volup_problem_print", byref(problem), text, len(text))
        return text.value.decode()

    def session(self, device="auto", precision="fp32", io="fp32", kernel=None, index=0):
        options = SessionOptions(ctypes.sizeof(SessionOptions), DEVICES[device], index,
                                 PRECISIONS[precision], DTYPES[io],
                                 kernel=kernel.encode() if kernel else None)
        handle = c_void_p()
        self._library.call("volup_session_create", self._handle, byref(options), byref(handle))
        return Session(self._library, handle)


class Session:
    """For one thread at a time."""

    def __init__(self, library, handle):
        self._library, self._handle = library, handle

    def __del__(self):
        self._library.destroy("volup_session_destroy", self._handle)

    def prepare(self, shape):
        self._library.call("volup_session_prepare", self._handle, Shape5(*shape))

    def describe(self, shape):
        text = c_char_p()
        self._library.call("volup_session_describe", self._handle, Shape5(*shape), byref(text))
        return json.loads(text.value)

    def run(self, x, add, out):
        """Host tensors; waits."""
        views = [tensor_view(t) for t in (x, add, out)]
        self._library.call("volup_session_run", self._handle, *views)

    def enqueue(self, x, add, out, stream=None):
        """Tensors (or views from tensor_view) on the session's device; stream: a cudaStream_t."""
        views = [tensor_view(t) for t in (x, add, out)]
        self._library.call("volup_session_enqueue", self._handle, *views, stream)
