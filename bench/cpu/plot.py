# SPDX-License-Identifier: Apache-2.0
"""Draws what cpu_bench measured: throughput against batch size, a line a thread count.

    python bench/cpu/plot.py cpu_bench.json throughput.svg

Throughput is billions of multiply-adds of taps that exist a second, of the median run. Needs
matplotlib.
"""

import collections
import json
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "volup"
import matplotlib.pyplot as plt


def main(source, target):
    with open(source) as file:
        measured = json.load(file)
    lines = collections.defaultdict(list)  # (model, threads) -> [(batch, rate)]
    peak = {}
    for run in measured["benchmarks"]:
        model, batch = run["name"].split()[:2]
        threads = int(run["name"].split("threads:")[1].split("/")[0])
        rate = run["GFMA_per_s"] * run["real_time"] / run["median_ms"]
        lines[model, threads].append((int(batch[1:]), rate))
        peak[threads] = max(peak.get(threads, 0), run["GFMA_per_s_peak"])
    models = sorted({model for model, _ in lines})
    figure, axes = plt.subplots(1, len(models), figsize=(4 * len(models), 3.2), sharey=True)
    for axis, model in zip(axes, models):
        for threads in sorted(peak):
            batches, rates = zip(*sorted(lines[model, threads]))
            line, = axis.plot(batches, rates, marker="o",
                              label=f"{threads} thread{'s' if threads > 1 else ''}")
            axis.axhline(peak[threads], color=line.get_color(), linestyle=":", linewidth=0.8)
        axis.set_xscale("log", base=2)
        axis.set_title(model)
        axis.set_xlabel("batch")
        axis.set_ylim(bottom=0)
    axes[0].set_ylabel("10⁹ multiply-adds/s (dotted: FMA rate)")
    axes[0].legend()
    figure.suptitle(f"{measured['context']['cpu']}, {measured['context']['date'][:10]}", fontsize=9)
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
