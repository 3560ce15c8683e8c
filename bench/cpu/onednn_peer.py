# SPDX-License-Identifier: Apache-2.0
"""oneDNN's deconvolution alone as a peer, in a process of its own, through oneDNN's C API (3.x).

    python bench/cpu/onednn_peer.py B|C BATCH LIBRARY_DIRECTORY

Answers each line of standard input by one JSON line: "info" says what runs, "error" the largest
deviation from PyTorch in float64 where PyTorch is there, and the name of a variant runs it once
unmeasured and twice measured and gives the milliseconds of these two. Everybody's tensors are NCDHW
when they come and go; what a variant needs beside the deconvolution for that is part of its time:

  ncdhw     source and destination in NCDHW, weights in whatever layout oneDNN likes best
  reordered source and destination channels-last or whatever oneDNN likes best (the faster of both),
            with a reorder of the source before and of the destination after it
  own       the same without reorders: not comparable, for information

The directory holds libdnnl.so.3 and what it needs. Builds for SYCL, such as PyPI's, find the CPU by
Intel's OpenCL runtime, which OCL_ICD_FILENAMES has to name; peers.py sets both.
"""

import ctypes
import json
import pathlib
import random
import sys
import time

SHAPES = {"A": ((3, 16), (16, 32, 32), 0), "B": ((32, 64), (16, 32, 32), 1),
          "C": ((32, 64), (16, 16, 16), 1)}  # channels, input, output padding; k3 s2 p1

# Of dnnl_types.h and dnnl_common_types.h.
CPU, F32, FORWARD_INFERENCE, DECONVOLUTION_DIRECT = 1, 3, 96, 10
ANY, X, ABCDE, ACDEB, BACDE = 1, 2, 6, 33, 35
QUERY_IMPLEMENTATION, QUERY_SOURCE, QUERY_WEIGHTS, QUERY_DESTINATION = 8, 129, 131, 133
SOURCE, DESTINATION, WEIGHTS, BIAS = 1, 17, 33, 41
ALLOCATE = ctypes.c_void_p(-1)


class Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int),
                ("hash", ctypes.c_char_p), ("cpu_runtime", ctypes.c_uint),
                ("gpu_runtime", ctypes.c_uint)]


class Argument(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_int), ("memory", ctypes.c_void_p)]


def int64s(values):
    return (ctypes.c_int64 * len(values))(*values)


class OneDnn:
    def __init__(self, directory):
        # By full path, because no loader path need name the directory.
        for name in ("libintlc.so.5", "libimf.so", "libsvml.so", "libtbb.so.12"):
            if (path := pathlib.Path(directory) / name).exists():
                ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(pathlib.Path(directory) / "libdnnl.so.3"))
        self.library.dnnl_version.restype = ctypes.POINTER(Version)
        self.library.dnnl_primitive_desc_query_md.restype = ctypes.c_void_p
        self.library.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
        self.engine = self.make("dnnl_engine_create", CPU, ctypes.c_size_t(0))
        self.stream = self.make("dnnl_stream_create", self.engine, 1)

    def version(self):
        v = self.library.dnnl_version().contents
        return f"{v.major}.{v.minor}.{v.patch}"

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name}: got status {status}, need 0")

    def make(self, name, *arguments):
        made = ctypes.c_void_p()
        self.call(name, ctypes.byref(made), *arguments)
        return made

    def description(self, sizes, tag):
        return self.make("dnnl_memory_desc_create_with_tag", len(sizes), int64s(sizes), F32, tag)

    def described(self, primitive_description, what):
        return ctypes.c_void_p(self.library.dnnl_primitive_desc_query_md(primitive_description,
                                                                         what, 0))

    def memory(self, description):
        return self.make("dnnl_memory_create", description, self.engine, ALLOCATE)

    def floats(self, memory, description):
        handle = ctypes.c_void_p()
        self.call("dnnl_memory_get_data_handle", memory, ctypes.byref(handle))
        count = self.library.dnnl_memory_desc_get_size(description) // 4
        return (ctypes.c_float * count).from_address(handle.value)

    def same(self, a, b):
        return bool(self.library.dnnl_memory_desc_equal(a, b))

    def run(self, primitive, memories):
        arguments = (Argument * len(memories))(*((k, v) for k, v in memories.items()))
        self.call("dnnl_primitive_execute", primitive, self.stream, len(memories), arguments)

    def wait(self):
        self.call("dnnl_stream_wait", self.stream)

    def reorder(self, from_description, to_description):
        description = self.make("dnnl_reorder_primitive_desc_create", from_description,
                                self.engine, to_description, self.engine, None)
        return self.make("dnnl_primitive_create", description)


class Deconvolution:
    """One layout: its primitives, and the NCDHW tensors shared by all layouts."""

    def __init__(self, onednn, problem, tag):
        self.onednn, self.problem = onednn, problem
        one = int64s((1, 1, 1))
        description = onednn.make(
            "dnnl_deconvolution_forward_primitive_desc_create", onednn.engine, FORWARD_INFERENCE,
            DECONVOLUTION_DIRECT, onednn.description(problem.source_size, tag),
            onednn.description(problem.weight_size, ANY),
            onednn.description(problem.weight_size[:1], X),
            onednn.description(problem.destination_size, tag), int64s((2, 2, 2)),
            int64s((0, 0, 0)), one, int64s((1 - problem.output_padding,) * 3), None)
        text = ctypes.c_char_p()
        onednn.call("dnnl_primitive_desc_query", description, QUERY_IMPLEMENTATION, 0,
                    ctypes.byref(text))
        self.implementation = text.value.decode()
        self.primitive = onednn.make("dnnl_primitive_create", description)
        source, weights, destination = (onednn.described(description, what) for what in (
            QUERY_SOURCE, QUERY_WEIGHTS, QUERY_DESTINATION))
        self.memories = {BIAS: problem.bias, SOURCE: problem.source,
                         DESTINATION: problem.destination, WEIGHTS: onednn.memory(weights)}
        onednn.run(onednn.reorder(problem.weight_description, weights),
                   {SOURCE: problem.weight, DESTINATION: self.memories[WEIGHTS]})
        onednn.wait()
        self.before = self.after = None
        if not onednn.same(source, problem.source_description):
            self.memories[SOURCE] = onednn.memory(source)
            self.before = onednn.reorder(problem.source_description, source)
        if not onednn.same(destination, problem.destination_description):
            self.memories[DESTINATION] = onednn.memory(destination)
            self.after = onednn.reorder(destination, problem.destination_description)

    def __call__(self, reorders=True):
        onednn, problem = self.onednn, self.problem
        if reorders and self.before:
            onednn.run(self.before, {SOURCE: problem.source, DESTINATION: self.memories[SOURCE]})
        onednn.run(self.primitive, self.memories)
        if reorders and self.after:
            onednn.run(self.after, {SOURCE: self.memories[DESTINATION],
                                    DESTINATION: problem.destination})
        onednn.wait()


class Problem:
    def __init__(self, onednn, letter, batch):
        (inputs, outputs), size, self.output_padding = SHAPES[letter]
        self.source_size = (batch, inputs, *size)
        self.weight_size = (outputs, inputs, 3, 3, 3)
        self.destination_size = (batch, outputs,
                                 *(2 * (n - 1) + 1 + self.output_padding for n in size))
        self.source_description = onednn.description(self.source_size, ABCDE)
        self.weight_description = onednn.description(self.weight_size, BACDE)
        self.destination_description = onednn.description(self.destination_size, ABCDE)
        bias_description = onednn.description((outputs,), X)
        self.source = onednn.memory(self.source_description)
        self.weight = onednn.memory(self.weight_description)
        self.destination = onednn.memory(self.destination_description)
        self.bias = onednn.memory(bias_description)
        generator = random.Random(1)
        self.values = []
        for memory, description, scale in ((self.source, self.source_description, 1),
                                           (self.weight, self.weight_description, 0.05),
                                           (self.bias, bias_description, 0.05)):
            floats = onednn.floats(memory, description)
            drawn = [scale * generator.gauss(0, 1) for _ in range(min(len(floats), 10007))]
            for begin in range(0, len(floats), len(drawn)):
                count = min(len(drawn), len(floats) - begin)
                floats[begin:begin + count] = drawn[:count]
            self.values.append(floats)
        self.result = onednn.floats(self.destination, self.destination_description)

    def error(self):
        """Largest deviation of the destination from PyTorch in float64; None without PyTorch."""
        try:
            import torch
        except ImportError:
            return None
        (inputs, outputs), got = (self.source_size[1], self.weight_size[0]), self.result
        source, weight, bias = (torch.frombuffer(values, dtype=torch.float32).double()
                                for values in self.values)
        exact = torch.nn.functional.conv_transpose3d(
            source.view(self.source_size), weight.view(inputs, outputs, 3, 3, 3), bias, stride=2,
            padding=1, output_padding=self.output_padding)
        got = torch.frombuffer(got, dtype=torch.float32).double().view(self.destination_size)
        return (got - exact).abs().max().item()


def milliseconds(call):
    begin = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - begin)


def main():
    letter, batch, directory = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    onednn = OneDnn(directory)
    problem = Problem(onednn, letter, batch)
    layouts = {"ncdhw": Deconvolution(onednn, problem, ABCDE)}
    for name, tag in (("any", ANY), ("ndhwc", ACDEB)):
        layouts[name] = Deconvolution(onednn, problem, tag)
    errors = {}
    for name, layout in layouts.items():
        layout()
        errors[name] = problem.error()
    least = {name: min(milliseconds(layouts[name]) for _ in range(5)) for name in ("any", "ndhwc")}
    best = min(least, key=least.get)
    variants = {"ncdhw": layouts["ncdhw"], "reordered": layouts[best],
                "own": lambda: layouts[best](reorders=False)}
    errors = {"ncdhw": errors["ncdhw"], "reordered": errors[best], "own": None}
    info = {"version": onednn.version(),
            "ncdhw": layouts["ncdhw"].implementation,
            "reordered": f"{best}: {layouts[best].implementation}",
            "own": f"{best}: {layouts[best].implementation}"}
    for line in sys.stdin:
        word = line.strip()
        if word == "info":
            answer = info
        elif word == "error":
            answer = errors
        else:
            variants[word]()
            answer = [milliseconds(variants[word]) for _ in range(2)]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
