# SPDX-License-Identifier: Apache-2.0
"""volup's CPU kernels beside other libraries, on the same data, in one process.

    python bench/cpu/peers.py [--threads 2] [--out FILE] [A B C]

Models A, B, C of models/ at batch 8, 1 and 4. Peers, each if it is installed (the first line says
which and their versions): PyTorch eager; torch.compile is left out, its convolution is eager's.
ONNX Runtime and OpenVINO get the model as an ONNX graph of the same operations. oneDNN, where
--onednn names the directory of its library, computes the deconvolution of B and C alone, NCDHW in
and out: without the epilogue (onednn_peer.py, in a process of its own). All run with the same number
of threads. Every round runs each once unmeasured and twice measured, after a pause in which what
others left behind (spinning threads) ends; so what else the machine does meets all alike. A ratio is
that of the minima. max_abs_err is against PyTorch in float64.
"""

import argparse
import copy
import ctypes
import io
import json
import os
import pathlib
import platform
import subprocess
import sys
import time
import warnings

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "models"), str(ROOT / "tools")]
import blocks
import volup_ctypes

BATCH = {"A": 8, "B": 1, "C": 4}
BLOCKS = {block.letter: block for block in blocks.BLOCKS}


def volup_session(library, model, threads):
    options = volup_ctypes.SessionOptions(ctypes.sizeof(volup_ctypes.SessionOptions),
                                          volup_ctypes.DEVICES["cpu"], threads=threads)
    handle = ctypes.c_void_p()
    library.call("volup_session_create", model._handle, ctypes.byref(options),
                 ctypes.byref(handle))
    return volup_ctypes.Session(library, handle)


def onnx_bytes(module, inputs):
    file = io.BytesIO()
    names = ["x", "add"][:len(inputs)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, inputs, file, input_names=names, output_names=["y"],
                          opset_version=18, dynamo=False)
    return file.getvalue(), names


def onnxruntime_call(model, feeds, threads):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)[0]


def openvino_call(model, feeds, threads):
    import openvino
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(model), "CPU", {
        "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY"})
    request = compiled.create_infer_request()
    inputs = [feeds[port.any_name] for port in compiled.inputs]
    return lambda: request.infer(inputs, share_inputs=True, share_outputs=True)[0]


class OneDnn:
    """onednn_peer.py's process for one problem."""

    def __init__(self, directory, letter):
        # Its threads are as many as its CPUs, which it has from this process.
        environment = {**os.environ, "OCL_ICD_FILENAMES": f"{directory}/libintelocl.so",
                       "LD_LIBRARY_PATH": str(directory)}
        script = pathlib.Path(__file__).resolve().parent / "onednn_peer.py"
        self.process = subprocess.Popen(
            [sys.executable, script, letter, str(BATCH[letter]), directory], env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.info, self.errors = self.ask("info"), self.ask("error")

    def ask(self, word):
        print(word, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def timed(call):
    """Milliseconds of two calls after one unmeasured."""
    call()
    times = []
    for _ in range(2):
        begin = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - begin))
    return times


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.machine()


def version_of(name):
    try:
        return __import__(name).__version__
    except ImportError:
        return None


def calls_of(letter, options, library):
    """{name: call} and the float64 outputs."""
    block = BLOCKS[letter]
    shape = (BATCH[letter], *block.reference[1:])
    model = library.load(ROOT / "models" / f"{block.name}.h5")
    weights = torch.jit.load(str(ROOT / "models" / f"{block.name}.pt")).state_dict()
    module = block.module().eval()
    module.load_state_dict(weights, strict=False)  # block C's unused bias may not be in the file
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(shape, generator=generator)
    out = torch.empty(model.output_shape(shape))
    add = 2 * torch.randn(out.shape, generator=generator) if block.takes_add else None
    inputs = (x,) if add is None else (x, add)
    session = volup_session(library, model, options.threads)
    session.prepare(shape)

    def volup():
        session.enqueue(x, add, out)
        return out

    calls = {"volup": volup, "torch_eager": lambda: module(*inputs)}
    exact = copy.deepcopy(module).double()(*(tensor.double() for tensor in inputs))
    peers = {"onnxruntime": onnxruntime_call, "openvino": openvino_call}
    if any(version_of(peer) for peer in peers):
        graph, names = onnx_bytes(module, inputs)
        feeds = {key: tensor.numpy() for key, tensor in zip(names, inputs)}
        for peer, make in peers.items():
            if version_of(peer):
                calls[peer] = make(graph, feeds, options.threads)
    return model.problem(shape), calls, exact


def measure(letter, options, library):
    problem, calls, exact = calls_of(letter, options, library)
    errors = {}
    for name, call in calls.items():
        out = torch.as_tensor(call())
        errors[name] = (out.double() - exact).abs().max().item()
    runs = {name: (lambda call=call: timed(call)) for name, call in calls.items()}
    details = {}
    onednn = OneDnn(options.onednn, letter) if options.onednn and letter != "A" else None
    if onednn:
        for variant in ("ncdhw", "reordered", "own"):
            name = f"onednn_deconvolution_alone_{variant}"
            runs[name] = lambda variant=variant: onednn.ask(variant)
            errors[name] = onednn.errors[variant]
            details[name] = {"version": onednn.info["version"],
                             "implementation": onednn.info[variant]}
    times = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, run in runs.items():
            time.sleep(0.02)
            times[name] += run()
    if onednn:
        onednn.close()
    for name in runs:
        ordered = sorted(times[name])
        yield {"model": letter, "problem": problem, "impl": name, "threads": options.threads,
               "ms_min": ordered[0], "ms_median": ordered[len(ordered) // 2],
               "times_volup": ordered[0] / min(times["volup"]), "max_abs_err": errors[name],
               **details.get(name, {})}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", help="A, B, C; default: all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--onednn", help="directory of libdnnl.so.3 and what it needs")
    parser.add_argument("--library", help="libvolup.so; default: a build directory's")
    parser.add_argument("--out", help="file for JSON lines; default: standard output")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    library = volup_ctypes.Library(options.library)
    # Libraries that count CPUs rather than ask find as many as there are to be threads.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:options.threads])
    lines = [{"cpu": cpu_name(), "threads": options.threads,
              "volup": library.version, "python": platform.python_version(),
              **{name: version_of(name) for name in ("torch", "onnxruntime", "openvino")}}]
    for letter in options.models or BATCH:
        for line in measure(letter, options, library):
            lines.append(line)
            print(f"{line['model']} {line['impl']:<36} {line['ms_min']:9.3f} ms "
                  f"({line['times_volup']:.2f} x volup), error {line['max_abs_err']}",
                  file=sys.stderr)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    if options.out:
        pathlib.Path(options.out).write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
