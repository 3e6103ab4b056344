#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FSDP2 of the language model of examples/train.py, whose gradients travel exactly or with 8 and 5 bits over Spillway,
against Gloo with float32 and with bfloat16.

  experiments/fsdp/run.py [--python PYTHON] [--quick] [--json FILE] [--presets NAME...] [--rate N] [--steps N]
                          [--seeds N] [--width N] [--layers N] [--batch N]

PYTHON has a torch with FSDP2 and its custom communication; Debian 12's has not. By default it is the one that runs
this. Needs root, or user namespaces, and bible-kjv. Prints Markdown; result.md is its last full output.
"""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from common import report

RANKS = 4
PRESETS = ("clean", "congested", "wan")
WAYS = ("gloo", "gloo-bf16", "exact", "8", "5", "5-bf16")
NAMES = {"gloo": "Gloo, float32", "gloo-bf16": "Gloo, bfloat16", "exact": "Spillway, exact", "8": "Spillway, 8 bits",
         "5": "Spillway, 5 bits", "5-bf16": "Spillway, 5 bits, weights bfloat16"}
TRIES = 3
LEVEL = report.Bar(0.995, 1.005)  # of Gloo's loss


def check_torch(python):
    tried = subprocess.run([python, "-c", "from torch.distributed.fsdp import FSDPModule as module; "
                            "module.set_custom_reduce_scatter"], capture_output=True, check=False)
    if tried.returncode != 0:
        sys.exit(f"{python} has no torch with FSDP2 and custom communication: give --python one that has, such as that of "
                 "a virtual environment (pip install torch numpy)")


def train(options, preset, way, seed):
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder, "log")
        command = [options.spillway, "lab", "run", "--preset", preset, "--rate", f"{options.rate}mbit", "--hosts", str(RANKS),
                   "--allow-late", "--quiet", "--env", f"PYTHONPATH={report.ROOT / 'python'}", "--env",
                   f"SPILLWAY_LIBRARY={options.library}", "--", options.python, str(HERE / "worker.py"), "--way", way,
                   "--width", str(options.width), "--layers", str(options.layers), "--batch", str(options.batch),
                   "--steps", str(options.steps), "--seed", str(seed), "--log", str(log)]
        report.output_of(command, TRIES)
        return json.loads(log.read_text())


def measure(options, claims):
    for preset in options.presets:
        found = {way: [] for way in WAYS}
        for seed in range(options.seeds):
            for way in WAYS:
                found[way].append(train(options, preset, way, seed))
        mean = {way: {name: statistics.fmean(each[name] for each in runs) for name in runs[0]} for way, runs in found.items()}
        print(f"## {preset}: {mean['gloo']['parameters']:,.0f} parameters on {RANKS} ranks\n")
        print(report.table(["", "median step, ms", "MB sent by rank 0 per step", f"test loss after {options.steps} steps"],
                           ([NAMES[way], f"{mean[way]['step_ms']:.0f}", f"{mean[way]['bytes'] / 1e6:.3f}",
                             f"{mean[way]['loss']:.4f}"] for way in WAYS)), flush=True)
        for way in WAYS[1:]:
            name = f"{preset}: {NAMES[way]} over Gloo, float32"
            claims.add(f"{name}: median step", mean[way]["step_ms"] / mean["gloo"]["step_ms"])
            claims.add(f"{name}: bytes", mean[way]["bytes"] / mean["gloo"]["bytes"])
            claims.add(f"{name}: test loss", mean[way]["loss"] / mean["gloo"]["loss"],
                       None if way.endswith("bf16") else LEVEL)


def main():
    parser = report.Parser(__doc__)
    parser.add_binary()
    parser.add_argument("--python", default=sys.executable, help="an interpreter whose torch has FSDP2")
    parser.add_argument("--library", default=str(report.BUILD / "lib/libspillway.so"), help="the library")
    parser.add_size("--presets", list(PRESETS), ["clean"], "networks", type=str, nargs="+", metavar="NAME")
    parser.add_size("--rate", 250, 50, "of the links, in Mb/s")
    parser.add_size("--steps", 300, 12, "of training")
    parser.add_size("--seeds", 3, 1, "of the initial weights and the order of the text")
    parser.add_size("--width", 256, 64, "of the model")
    parser.add_size("--layers", 4, 2, "of the model")
    parser.add_size("--batch", 64, 16, "blocks of text over all ranks")
    options = parser.parse_args()
    check_torch(options.python)
    print(f"# FSDP2 with fewer bits\n\n`experiments/fsdp/run.py{' --quick' * options.quick} --rate {options.rate} --steps "
          f"{options.steps} --seeds {options.seeds} --width {options.width} --layers {options.layers} --batch "
          f"{options.batch}`\n")
    claims = report.Claims(options.quick)
    measure(options, claims)
    claims.finish(options)


if __name__ == "__main__":
    main()
