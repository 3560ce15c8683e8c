# SPDX-License-Identifier: Apache-2.0
"""volup and PyTorch on the same problems, in one process, on the same device tensors.

    python tools/bench_vs_torch.py A --out a.jsonl     (one model; A B C or none: all three)

Models A, B, C of models/ at their reference shapes, and at batch 1. Each line of the output is one
measurement as JSON; the first line says where and with what. A table is printed at the end.

Time: CUDA events around one call, median and minimum after warm-up. Both sides rotate over sets of
inputs and outputs that together hold at least four times the L2. At batch 1 (`graph`) the call is
replayed in CUDA graphs, one for each set, on a stream made for it (on the default stream each takes
longer), and figures are taken, the same way for both sides:
lone_replay_ms (ms_median, too) has the events around one replay and so holds the host's launch of
it; replay_in_a_row_ms has them around 50 replays back to back, all queued before the first starts,
and is a 50th of that (median of 20 such rows). empty_graph_ms and empty_graph_in_a_row_ms are the
same two for an empty graph. in_one_graph_ms is a call's share of a graph that holds a round of the
sets, 20 calls or more, by rows of two replays. rows_late and in_one_graph_rows_late, where they
are, count rows that were not queued in time and may hold launches. Of torch.compile's modes the one
with the shorter replay_in_a_row_ms is shown (without a graph: ms_median).
floor_ms: the bytes of input and output once, at the copy rate measured in this run.

Error: against float64 of the inputs as given (rounded to 16 bits where io says so) and the fp32
weights, for both sides: volup keeps fp32 weights, PyTorch's fp16 and bf16 modules hold rounded
ones, and that rounding counts. The float64 side is PyTorch's own convolution, with cuDNN off.
Outputs that volup writes are filled with NaN before they are checked. max_rel_err is the largest
|error| / max(|y|, 1). Infinity meets infinity; any other output that is not finite makes the errors
null, counts as `not_finite` and ends the program with 1.

data: "normal" is N(0, 1) (add: twice that). "wide", fp32 only, multiplies each voxel by
2^uniform(-12, 12) and one voxel by 1e6; it has one set of tensors.

samples_in_range: with fp32 I/O, the share of samples that fp16 pairs can hold, which the fp32 path of
the kernels for B and C takes (docs/kernels.md); a slower one takes the others.
"""

import argparse
import datetime
import gc
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time
import warnings

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "models"), str(ROOT / "tools")]
import blocks
import volup_ctypes

IO = {"fp32": "fp32", "tf32": "fp32", "fp16": "fp16", "bf16": "bf16"}  # precision -> I/O dtype
DTYPE = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
COMPILE_MODES = ("default", "max-autotune-no-cudagraphs")
KEYS = ("model", "problem", "impl", "kernel", "precision", "io", "graph", "ms_median", "ms_min",
        "lone_replay_ms", "replay_in_a_row_ms", "in_one_graph_ms", "max_abs_err", "max_rel_err",
        "floor_ms", "data", "samples_in_range")
ROWS, ROW_REPLAYS = 20, 50
GRAPH_CALLS = 20
SLEEP_CYCLES = (2**22, 2**27)  # least and most; some 2 ms and 70 ms


def samples_in_range(x):
    """The share of the samples that the rule of lib/cuda/sm90_layout.h gives to fp16 pairs: numbers
    other than 0 within 2^27 of their greatest, which is 2^-60 to 2^60, and three sixteenths of all
    or more."""
    def fits(sample):
        magnitudes = sample.abs()
        numbers = magnitudes[(magnitudes > 0) & torch.isfinite(magnitudes)]
        if 16 * (magnitudes != 0).sum() < 3 * sample.numel() or numbers.numel() == 0:
            return False
        _, exponents = torch.frexp(torch.stack([numbers.min(), numbers.max()]))
        least, greatest = (e - 1 for e in exponents.tolist())
        return greatest - least <= 27 and abs(greatest) <= 60

    return sum(fits(sample) for sample in x) / len(x)


class Bench:
    """What a run keeps: options, the device's numbers, the lines so far."""

    def __init__(self, options):
        self.options, self.lines, self.failed = options, [], False
        self.cuda = options.device == "cuda"
        self.out = open(options.out, "w") if options.out else sys.stdout
        self.library = volup_ctypes.Library(options.library)
        torch.backends.cudnn.benchmark = True
        self.l2 = torch.cuda.get_device_properties(0).L2_cache_size if self.cuda else 0
        self.copy_rate = self.empty_graph_ms = self.empty_graph_in_a_row_ms = None
        self.replay_stream = torch.cuda.Stream() if self.cuda else None
        if self.cuda:
            source = torch.randint(0, 255, (2**31,), dtype=torch.uint8, device="cuda")
            target = torch.empty_like(source)
            ms = self.time(lambda i: target.copy_(source), 1)[0]
            self.copy_rate = 2 * source.numel() / (ms * 1e-3)
            empty = self.capture(lambda i: None, 1)
            (self.empty_graph_ms, _), (self.empty_graph_in_a_row_ms, _) = \
                self.time_replays(empty, 1)

    def write(self, line):
        self.out.write(json.dumps(line, allow_nan=False) + "\n")
        self.out.flush()

    def write_head(self):
        def output_of(*command):
            try:
                return subprocess.run(command, capture_output=True, text=True, check=True,
                                      cwd=ROOT).stdout.strip()
            except (OSError, subprocess.CalledProcessError):
                return None

        driver = output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
        self.write({
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "gpu": torch.cuda.get_device_name(0) if self.cuda else None,
            "driver": driver.splitlines()[0] if driver else None,
            "torch": torch.__version__, "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version() if self.cuda else None,
            "volup": self.library.version,
            "commit": self.options.commit or output_of("git", "rev-parse", "HEAD"),
            "l2_bytes": self.l2, "copy_tb_s": self.copy_rate and self.copy_rate / 1e12,
            "empty_graph_ms": self.empty_graph_ms,
            "empty_graph_in_a_row_ms": self.empty_graph_in_a_row_ms})

    def record(self, **line):
        self.lines.append({key: line.get(key) for key in KEYS} | line)
        self.write(self.lines[-1])
        self.failed |= "not_finite" in line
        keys = ("problem", "impl", "kernel", "ms_median", "replay_in_a_row_ms")
        print(*(line.get(k, "-") for k in keys), line.get("error", ""), file=sys.stderr, flush=True)

    def synchronize(self):
        if self.cuda:
            torch.cuda.synchronize()

    def time(self, call, sets):
        """(median, minimum) in ms of call(i), i going round the sets."""
        for i in range(max(3, sets)):  # a whole round, so that the memory of every set is there
            call(i % sets)
        self.synchronize()
        begin = time.perf_counter()
        call(0)
        self.synchronize()
        once = time.perf_counter() - begin
        count = 5 if self.options.quick else min(100, max(20, int(1 / once)))
        if not self.cuda:
            times = []
            for i in range(count):
                begin = time.perf_counter()
                call(i % sets)
                times.append((time.perf_counter() - begin) * 1e3)
            return statistics.median(times), min(times)
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
        for i, (start, stop) in enumerate(pairs):
            start.record()
            call(i % sets)
            stop.record()
        self.synchronize()
        times = [start.elapsed_time(stop) for start, stop in pairs]
        return statistics.median(times), min(times)

    def time_rows(self, replay, sets, replays=ROW_REPLAYS):
        """(median ms of one replay in a row of them, number of late rows); the rows go round the
        sets, each from where the one before it stopped."""
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        sleep, times, late_rows, begin = SLEEP_CYCLES[0], [], 0, 0
        while len(times) < (5 if self.options.quick else ROWS):
            # The device sleeps while the host queues the row: short graphs would wait for the host.
            torch.cuda._sleep(sleep)
            start.record()
            for i in range(begin, begin + replays):
                replay(i % sets)
            stop.record()
            late = start.query()
            stop.synchronize()
            begin += replays
            if late and sleep < SLEEP_CYCLES[1]:
                sleep *= 2
                continue
            late_rows += late
            times.append(start.elapsed_time(stop) / replays)
        return statistics.median(times), late_rows

    def time_replays(self, replay, sets):
        """What time and time_rows say, on a stream made for it."""
        self.synchronize()
        with torch.cuda.stream(self.replay_stream):
            return self.time(replay, sets), self.time_rows(replay, sets)

    def time_in_one_graph(self, call, sets):
        """(median ms of one call among those of one graph, number of late rows)."""
        calls = sets * math.ceil(GRAPH_CALLS / sets)
        replay = self.capture(lambda _: [call(i % sets) for i in range(calls)], 1)
        with torch.cuda.stream(self.replay_stream):
            ms, late = self.time_rows(replay, 1, 2)
        return ms / calls, late

    def capture(self, call, sets):
        """A function of i that replays call(i), captured once for each set."""
        stream, pool, graphs = torch.cuda.Stream(), torch.cuda.graph_pool_handle(), []
        torch.cuda.synchronize()
        gc.collect()
        gc.disable()  # a session or graph must not be freed during a capture
        try:
            with torch.cuda.stream(stream), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that the empty graph is empty
                call(0)  # what a first call sets up cannot be captured
                torch.cuda.synchronize()
                for i in range(sets):
                    graphs.append(torch.cuda.CUDAGraph())
                    graphs[-1].capture_begin(pool=pool)
                    try:
                        call(i)
                    finally:
                        graphs[-1].capture_end()
        finally:
            gc.enable()
        torch.cuda.synchronize()
        return lambda i: graphs[i].replay()

    def measure(self, data, call, outs):
        """Times call(i), which leaves its result in outs[i], and checks that of set 0."""
        replayed = self.cuda and data.graph
        run = self.capture(call, len(outs)) if replayed else call
        if replayed:
            (median, least), (in_a_row, late_rows) = self.time_replays(run, len(outs))
        else:
            (median, least), in_a_row, late_rows = self.time(run, len(outs)), None, 0
        outs[0].fill_(math.nan)
        run(0)
        self.synchronize()
        line = {"graph": replayed, "ms_median": median, "ms_min": least, "data": data.kind,
                "floor_ms": data.bytes / self.copy_rate * 1e3 if self.copy_rate else None}
        if replayed:
            line |= {"lone_replay_ms": median, "replay_in_a_row_ms": in_a_row,
                     "empty_graph_ms": self.empty_graph_ms,
                     "empty_graph_in_a_row_ms": self.empty_graph_in_a_row_ms}
        if late_rows:
            line["rows_late"] = late_rows
        line |= data.errors(outs[0])
        if replayed:  # last, for a capture of PyTorch's calls puts other tensors into outs
            line["in_one_graph_ms"], late = self.time_in_one_graph(call, len(outs))
            if late:
                line["in_one_graph_rows_late"] = late
        return line


class Data:
    """Inputs of a problem, in sets that together outgrow the L2; the float64 output of set 0."""

    def __init__(self, bench, block, state, batch, io, kind="normal"):
        device, dtype = bench.options.device, DTYPE[io]
        self.io, self.kind, self.graph = io, kind, batch == 1
        self.shape = (batch, *(block.reference if bench.cuda else block.small)[1:])
        self.reference = block.module().double()
        self.reference.load_state_dict({k: v.double() for k, v in state.items()})
        self.reference.to(device)
        conv = self.reference.conv_transpose
        spatial = [(i - 1) * s - 2 * p + k + o for i, s, p, k, o in zip(
            self.shape[2:], conv.stride, conv.padding, conv.kernel_size, conv.output_padding)]
        conv_shape = (batch, conv.out_channels, *spatial)
        self.out_shape = (batch, 1, *spatial) if block.letter == "A" else conv_shape
        shapes = [self.shape, self.out_shape] + ([conv_shape] if block.takes_add else [])
        self.bytes = sum(math.prod(shape) for shape in shapes) * dtype.itemsize
        sets = max(2, math.ceil(4 * bench.l2 / self.bytes)) if kind == "normal" else 1
        generator = torch.Generator(device).manual_seed(20_11)

        def make():
            x = torch.randn(self.shape, device=device, generator=generator)
            if kind == "wide":
                voxels = (batch, 1, *self.shape[2:])
                x *= torch.exp2(24 * torch.rand(voxels, device=device, generator=generator) - 12)
                x[0, :, 1, 1, 1] = 1e6
            inputs = [x.to(dtype)]
            if block.takes_add:
                add = torch.randn(conv_shape, device=device, generator=generator)
                inputs.append(add.mul_(2).to(dtype))
            return inputs

        self.sets = [make() for _ in range(sets)]
        self.in_range = (statistics.mean(samples_in_range(s[0]) for s in self.sets)
                         if dtype == torch.float32 else None)
        self.y = torch.cat([self.truth(i) for i in range(batch)])

    def truth(self, sample):
        enabled, torch.backends.cudnn.enabled = torch.backends.cudnn.enabled, False
        y = self.reference(*(t[sample : sample + 1].double() for t in self.sets[0]))
        torch.backends.cudnn.enabled = enabled
        return y

    def errors(self, out):
        worst_abs = worst_rel = 0.0
        not_finite = 0
        for got, y in zip(out, self.y):  # by sample: float64 of a whole output is large
            got, limit = got.double(), torch.finfo(DTYPE[self.io]).max
            overflows = (got == torch.sign(y) * math.inf) & (y.abs() > limit)
            err = torch.where((got == y) | overflows, 0.0, (got - y).abs())
            not_finite += (~torch.isfinite(err)).sum().item()
            worst_abs = max(worst_abs, err.max().item())
            worst_rel = max(worst_rel, (err / y.abs().clamp(min=1)).max().item())
        if not_finite:
            return {"max_abs_err": None, "max_rel_err": None, "not_finite": not_finite}
        return {"max_abs_err": worst_abs, "max_rel_err": worst_rel}


def bench_volup(bench, model, data, common):
    for forced in bench.options.kernel or [None]:
        line = common | {"impl": "volup", "kernel": forced}
        try:
            session = model.session(bench.options.device, common["precision"], data.io, forced)
            session.prepare(data.shape)
            chosen = session.describe(data.shape)
            line |= {"kernel": chosen["kernel"], "tile": chosen["tile"]}
            outs = [torch.empty(data.out_shape, dtype=DTYPE[data.io], device=bench.options.device)
                    for _ in data.sets]
            views = [[volup_ctypes.tensor_view(t) for t in (x, add[0] if add else None, out)]
                     for (x, *add), out in zip(data.sets, outs)]

            def call(i):
                stream = torch.cuda.current_stream().cuda_stream if bench.cuda else None
                session.enqueue(*views[i], stream)

            line |= bench.measure(data, call, outs)
        except volup_ctypes.VolupError as error:
            line["error"] = str(error)
            bench.failed |= forced is None  # a forced kernel may refuse
        bench.record(**line)


def measure_torch(bench, data, function, precision):
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    outs = [None] * len(data.sets)

    def call(i):
        outs[i] = function(*data.sets[i])

    return bench.measure(data, call, outs)


def bench_torch(bench, module, data, precisions, common, deadline):
    """Eager, then torch.compile's better mode; one compilation serves fp32 and tf32, because a
    transposed convolution stays a call of cuDNN, which reads the TF32 switch when it runs."""

    def attempt(function, precision, **fields):
        line = common[precision] | fields
        try:
            return line | measure_torch(bench, data, function, precision)
        except Exception as error:  # PyTorch's own failure is a result, not ours to hide
            return line | {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}

    for precision in precisions:
        bench.record(**attempt(module, precision, impl="torch_eager", kernel="eager"))
    if data.kind != "normal":
        return
    compiled = {precision: [] for precision in precisions}
    for mode in COMPILE_MODES[:1] if bench.options.quick else COMPILE_MODES:
        torch.compiler.reset()
        function = torch.compile(module, mode=mode, dynamic=False)
        for precision in precisions:
            fields = {"impl": "torch_compile", "kernel": mode}
            late = time.monotonic() > deadline
            compiled[precision].append(
                common[precision] | fields | {"error": "not run: no time left to compile"} if late
                else attempt(function, precision, **fields))
    for lines in compiled.values():
        better = min(lines, key=lambda line: line.get("replay_in_a_row_ms",
                                                      line.get("ms_median", math.inf)))
        modes = {"modes": {line["kernel"]: line.get("ms_median", line.get("error"))
                           for line in lines}}
        if better.get("graph"):
            modes["modes_in_a_row"] = {line["kernel"]: line.get("replay_in_a_row_ms")
                                       for line in lines}
        bench.record(**better, **modes)


def bench_model(bench, block):
    deadline = time.monotonic() + bench.options.compile_seconds
    stem = bench.options.models_dir / block.name
    state = torch.jit.load(f"{stem}.pt", map_location="cpu").state_dict()
    model = bench.library.load(f"{stem}.h5")
    for ours, key in zip(model.weights(), ("conv_transpose.weight", "conv_transpose.bias")):
        theirs = state[key].flatten()
        if not torch.equal(torch.frombuffer(ours, dtype=torch.float32), theirs):
            sys.exit(f"{stem}.h5: its {key} differs from that of {stem}.pt")
    reference = block.reference[0] if bench.cuda else block.small[0]
    cases = [(batch, io, "normal") for batch in (reference, 1) for io in DTYPE]
    for batch, io, kind in [*cases, (reference, "fp32", "wide")]:
        precisions = [p for p in bench.options.precisions
                      if IO[p] == io and (kind == "normal" or p == "fp32")]
        if not precisions:
            continue
        data = Data(bench, block, state, batch, io, kind)
        common = {p: {"model": block.letter, "problem": model.problem(data.shape, p, io),
                      "precision": p, "io": io, "data": kind,
                      "samples_in_range": data.in_range} for p in precisions}
        for precision in precisions:
            bench_volup(bench, model, data, common[precision])
        if not bench.options.skip_torch:
            module = block.module().to(bench.options.device, DTYPE[io]).eval()
            module.load_state_dict(state)
            bench_torch(bench, module, data, precisions, common, deadline)
        del data
        if bench.cuda:
            torch.cuda.empty_cache()  # volup does not allocate from PyTorch's cache


def print_table(lines):
    """Calls in graphs stand under the columns of graphs, others under ms_median."""
    names = (("problem", 52), ("data", 8), ("impl", 15), ("kernel", 28))
    columns = (("ms_median", 9, ".4f"), ("lone_replay_ms", 14, ".4f"),
               ("replay_in_a_row_ms", 18, ".4f"), ("in_one_graph_ms", 15, ".4f"),
               ("floor_ms", 9, ".4f"), ("max_abs_err", 12, ".1e"), ("samples_in_range", 16, ".3f"))
    print("".join(f"{key:{width}}" for key, width in names)
          + "".join(f"{key:>{width + 1}}" for key, width, _ in columns))
    for line in lines:
        shown = line | {"ms_median": None} if line["graph"] else line
        texts = ("-" if shown[key] is None else f"{shown[key]:{form}}" for key, _, form in columns)
        print("".join(f"{shown[key] or '-':{width}}" for key, width in names)
              + "".join(f"{text:>{width + 1}}" for text, (_, width, _) in zip(texts, columns)),
              line.get("error", ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", type=str.upper, metavar="MODEL",
                        help="A, B, C; none: all three")
    parser.add_argument("--out", help="file for the JSON lines (default: stdout)")
    parser.add_argument("--quick", action="store_true", help="5 iterations, one compile mode")
    parser.add_argument("--skip-torch", action="store_true", help="volup alone")
    parser.add_argument("--precisions", nargs="+", choices=IO, default=list(IO))
    parser.add_argument("--kernel", action="append", help="force this volup kernel; repeatable")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda",
                        help="cpu: tiny shapes, to try the program itself")
    parser.add_argument("--library", help="libvolup.so (default: VOLUP_LIBRARY, then a build here)")
    parser.add_argument("--models-dir", type=pathlib.Path, default=ROOT / "models")
    parser.add_argument("--commit", help="commit to note (default: git's)")
    parser.add_argument("--compile-seconds", type=float, default=330,
                        help="start no further torch.compile this long after a model's start")
    options = parser.parse_args()
    for letter in options.models:
        if letter not in [block.letter for block in blocks.BLOCKS]:
            parser.error(f"model: got {letter}, need A, B or C")
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("bench_vs_torch: PyTorch sees no GPU; --device cpu tries the program without one")
    with torch.no_grad():
        bench = Bench(options)
        bench.write_head()
        for block in blocks.BLOCKS:
            if not options.models or block.letter in options.models:
                bench_model(bench, block)
    empty = dict.fromkeys(KEYS) | {"problem": "an empty graph",
                                   "lone_replay_ms": bench.empty_graph_ms,
                                   "replay_in_a_row_ms": bench.empty_graph_in_a_row_ms}
    print_table(bench.lines + [empty] if bench.cuda else bench.lines)
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
