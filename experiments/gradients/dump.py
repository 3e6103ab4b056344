#!/usr/bin/python3
"""Dump real gradients for the codec's tests and benchmarks.

Trains a small CNN on Fashion-MNIST with a fixed seed and writes the gradients
of one convolutional and one fully connected layer, at the first and at the
last training step, as raw little-endian float32 files (no header):

    conv_step1.f32  conv_step<N>.f32   conv2.weight, whole (18432 floats)
    fc_step1.f32    fc_step<N>.f32     fc1.weight, first 32768 floats, row-major

The gradient of step k is the one computed from the k-th mini-batch, before the
optimizer applies it; momentum is not part of it. Prints the loss as it goes,
the test accuracy, and a Markdown table of statistics of the files.
"""

import argparse
import gzip
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

BATCH = 64
LEARNING_RATE = 0.05
MOMENTUM = 0.5  # 0.9 at this rate leaves a sixth of the fc1 units dead
PIXEL_MEAN, PIXEL_STD = 0.2860, 0.3530  # of the training set, pixels in [0, 1]
MAX_FLOATS = 32768  # per file: 128 KiB


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(64 * 12 * 12, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))                   # 32 x 26 x 26
        x = F.relu(self.conv2(x))                   # 64 x 24 x 24
        x = F.max_pool2d(x, 2)                      # 64 x 12 x 12
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc2(x)


def read_idx(path):
    """Reads a gzipped IDX file of unsigned bytes (the MNIST format)."""
    raw = gzip.decompress(path.read_bytes())
    if raw[:3] != b"\0\0\x08":
        raise ValueError(f"{path}: not an IDX file of unsigned bytes")
    dims = np.frombuffer(raw, ">u4", count=raw[3], offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(dims)


def load(folder, prefix):
    """Returns standardised images as N x 1 x 28 x 28, and labels."""
    images = read_idx(folder / f"{prefix}-images-idx3-ubyte.gz")
    labels = read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz")
    x = (images[:, None].astype(np.float32) / 255 - PIXEL_MEAN) / PIXEL_STD
    return torch.from_numpy(x), torch.from_numpy(labels.astype(np.int64))


@torch.no_grad()
def accuracy(net, x, y):
    """Fraction of the samples that the network labels correctly."""
    hits = sum((net(a).argmax(1) == b).sum().item()
               for a, b in zip(x.split(500), y.split(500)))
    return hits / len(y)


def flat(parameter):
    """The gradient of a parameter, row-major, cut to MAX_FLOATS."""
    return parameter.grad.numpy().reshape(-1)[:MAX_FLOATS].astype("<f4")


def table_row(name, g):
    """One line of the statistics table, computed in double precision."""
    g = g.astype(np.float64)
    rms = np.sqrt(np.mean(g**2))
    peak = np.abs(g).max() / rms
    zeros = np.mean(g == 0.0)
    d = g - g.mean()
    kurtosis = np.mean(d**4) / np.mean(d**2) ** 2 - 3.0
    return (f"| `{name}` | {g.size} | {rms:.3e} | {peak:.2f} "
            f"| {zeros:.4f} | {kurtosis:.2f} |")


def parse_args():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example:\n  /usr/bin/python3 experiments/gradients/dump.py "
               "--out tests/data/gradients --seed 1 --steps 300")
    parser.add_argument("--out", type=pathlib.Path, required=True,
                        help="folder for the .f32 files, created if missing")
    parser.add_argument("--seed", type=int, default=1,
                        help="seed of the weights and the batch order (1)")
    parser.add_argument("--steps", type=int, default=300,
                        help="training steps, 2 or more (300)")
    parser.add_argument("--data", type=pathlib.Path,
                        default=pathlib.Path("/usr/share/datasets/fashion-mnist"),
                        help="folder of the gzipped IDX files (where Debian's "
                             "dataset-fashion-mnist puts them)")
    args = parser.parse_args()
    if args.steps < 2:
        parser.error("--steps must be 2 or more")
    return args


def main():
    args = parse_args()

    # One thread and a fixed seed: the same bytes on every run on one machine.
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    torch.use_deterministic_algorithms(True)

    x, y = load(args.data, "train")
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=LEARNING_RATE,
                                momentum=MOMENTUM)
    dumps = {}
    order = torch.empty(0, dtype=torch.int64)
    recent = []
    for step in range(1, args.steps + 1):
        if len(order) < BATCH:  # start of an epoch
            order = torch.randperm(len(y))
        batch, order = order[:BATCH], order[BATCH:]

        optimizer.zero_grad()
        loss = F.cross_entropy(net(x[batch]), y[batch])
        loss.backward()
        if step in (1, args.steps):
            dumps[f"conv_step{step}.f32"] = flat(net.conv2.weight)
            dumps[f"fc_step{step}.f32"] = flat(net.fc1.weight)
        optimizer.step()

        recent = (recent + [loss.item()])[-50:]
        if step == 1 or step % 50 == 0 or step == args.steps:
            print(f"step {step}: loss {np.mean(recent):.4f} "
                  f"(mean of the last {len(recent)})", flush=True)

    print(f"test accuracy {accuracy(net, *load(args.data, 't10k')):.4f}\n")

    args.out.mkdir(parents=True, exist_ok=True)
    print("| file | count | rms | max abs / rms | zeros | excess kurtosis |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, g in sorted(dumps.items()):
        (args.out / name).write_bytes(g.tobytes())
        print(table_row(name, g))


if __name__ == "__main__":
    main()
