#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of DistributedDataParallel with a transformer, with gradients through this machine's sockets.

    tools/bench/cuda_ddp.py LIBRARY [--ranks 4] [--layers 8] [--width 1024] [--ways gloo,gloo-fp16,5,5-cpu]
                                    [--gigabits 10] [--steps 8] [--parts]

Ranks share the available devices; without one they train on the CPU. Ways: gloo; gloo-fp16, with torch's hook that
sends halves; 5 and 8, Spillway's hook with this many bits, coded by the GPU; 5-cpu, the same coded by the CPU.

Prints the slowest rank's median step time, and the loss after the last step. With --parts also the times of the last
step's parts at the first rank, in ms (they overlap), and its numbers of retransmitted and lost packets. Ranks are
connected by loopback or, with --gigabits, which needs root, by links of this rate to a bridge (links.py).
"""
import argparse
import contextlib
import dataclasses
import json
import multiprocessing
import os
import pathlib
import socket
import statistics
import sys
import time

from links import Links

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"
WARM_UP, STEPS = 4, 8
BATCH, LENGTH, WORDS = 4, 128, 1000


def train(way, device, layers, width, steps):
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.nn.parallel import DistributedDataParallel
    torch.manual_seed(7)
    layer = torch.nn.TransformerEncoderLayer(width, max(width // 64, 1), 4 * width, dropout=0.0, batch_first=True)
    model = torch.nn.Sequential(torch.nn.Embedding(WORDS, width), torch.nn.TransformerEncoder(layer, layers),
                                torch.nn.Linear(width, WORDS)).to(device)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    model = DistributedDataParallel(model)
    if way == "gloo-fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    hook = None
    if not way.startswith("gloo"):
        import spillway.torch
        bits = int(way.split("-")[0])
        hook = spillway.torch.attach(model, spillway.torch.Planes(bits))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    random, times, loss = torch.Generator().manual_seed(torch.distributed.get_rank()), [], None
    for _ in range(min(WARM_UP, steps) + steps):
        words = torch.randint(WORDS, (BATCH, LENGTH), generator=random).to(device)
        torch.distributed.barrier()
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(words).reshape(-1, WORDS), words.reshape(-1))
        loss.backward()
        optimizer.step()
        value = loss.item()
        times.append(time.perf_counter() - start)
    return parameters, times[-steps:], value, parts_of(hook) if hook is not None else {}


def parts_of(hook):
    report = hook.report()
    parts = {name: seconds * 1e3 for name, seconds in dataclasses.asdict(report.parts).items()}
    return {**parts, "packets again": report.repeated, "lost": report.lost}


def be_rank(rank, world, port, way, layers, width, steps, links, pipe):
    os.environ.update({"SPILLWAY_LOCAL_COPY": "0", "SPILLWAY_SOCKET_IFNAME": "=lo",
                       "GLOO_SOCKET_IFNAME": "lo",
                       "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank),
                       "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
    if links is not None:
        os.environ.update(links.enter(rank))
    sys.path.insert(0, str(PACKAGE))
    import torch
    if not way.startswith("gloo"):
        import spillway.torch.tensors
        spillway.torch.tensors.allow_gpu_coding(not way.endswith("-cpu"))
    torch.distributed.init_process_group("gloo" if way.startswith("gloo") else "spillway")
    device = torch.device("cuda", rank % torch.cuda.device_count()) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    pipe.send(json.dumps(train(way, device, layers, width, steps)))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def measure(way, world, layers, width, steps, links):
    context, port, ranks = multiprocessing.get_context("spawn"), free_port(), []
    for rank in range(world):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=be_rank, args=(rank, world, port, way, layers, width, steps, links, theirs))
        process.start()
        theirs.close()
        ranks.append((process, ours))
    said = [json.loads(pipe.recv()) for _, pipe in ranks]
    for process, _ in ranks:
        process.join()
    slowest = [max(times) for times in zip(*(times for _, times, _, _ in said))]
    return said[0][0], statistics.median(slowest), *said[0][2:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--ways", default="gloo,gloo-fp16,5,5-cpu")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--gigabits", type=float)
    parser.add_argument("--parts", action="store_true")
    arguments = parser.parse_args()
    os.environ["SPILLWAY_LIBRARY"] = str(arguments.library.resolve())
    print(f"{'way':10} {'parameters':>11} {'ms':>9} {'loss':>8}")
    links = Links(arguments.ranks, arguments.gigabits) if arguments.gigabits else None
    with links or contextlib.nullcontext():
        for way in arguments.ways.split(","):
            parameters, seconds, loss, parts = measure(way, arguments.ranks, arguments.layers, arguments.width,
                                                       arguments.steps, links)
            print(f"{way:10} {parameters:11} {seconds * 1e3:9.1f} {loss:8.4f}", flush=True)
            if arguments.parts and parts:
                print("           " + ", ".join(f"{name} {value:.2f}" for name, value in parts.items()), flush=True)


if __name__ == "__main__":
    main()
