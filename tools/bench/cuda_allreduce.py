#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduces of CUDA tensors through torch.distributed, over this machine's sockets: Spillway against Gloo.

    tools/bench/cuda_allreduce.py LIBRARY [--ranks 4] [--megabytes 4,64,256] [--ways gloo,exact,5,8,5-cpu] [--parts]

Ranks share the available devices. Ways: gloo; exact (Spillway); 5 and 8 (tolerant, with this many bits, coded by the
GPU); levels (with 4 bits); 5-cpu (as 5, with values copied to the host and coded there).

Prints bus bandwidth as nccl-tests define it, 2 (n - 1) / n times bytes over time, by the median of the slowest rank's
times, and processor seconds of all ranks per GB of tensor. With --parts also the times of the last all-reduce's parts
at the first rank, in ms (they overlap), and its share of retransmitted packets.
"""
import argparse
import dataclasses
import json
import multiprocessing
import os
import pathlib
import resource
import socket
import statistics
import sys
import time

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"
WARM_UP, ITERATIONS = 3, 8


def environment_of(way):
    name = way.split("-")[0]
    if name in ("gloo", "exact"):
        codec = {}
    else:
        codec = {"SPILLWAY_CODEC": name} if name == "levels" else {"SPILLWAY_CODEC": "planes", "SPILLWAY_BITS": name}
    return {"SPILLWAY_LOCAL_COPY": "0", "SPILLWAY_SOCKET_IFNAME": "=lo", "GLOO_SOCKET_IFNAME": "lo", **codec}


def be_rank(rank, world, port, way, sizes, pipe):
    os.environ.update(environment_of(way))
    os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank),
                       "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
    import torch
    import torch.distributed as dist
    if way != "gloo":
        sys.path.insert(0, str(PACKAGE))
        import spillway.torch.tensors
        spillway.torch.tensors.allow_gpu_coding(not way.endswith("-cpu"))
    dist.init_process_group("gloo" if way == "gloo" else "spillway")
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    said = {}
    for megabytes in sizes:
        tensor = torch.randn(megabytes * 250_000, device=device)
        times, used = [], 0.0
        for number in range(WARM_UP + ITERATIONS):
            tensor.normal_()
            torch.cuda.synchronize()
            dist.barrier()
            before, start = seconds_of_processor(), time.perf_counter()
            work = dist.all_reduce(tensor, async_op=True)
            work.wait()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
            used += seconds_of_processor() - before if number >= WARM_UP else 0.0
        said[megabytes] = (times[WARM_UP:], used / ITERATIONS, {} if way == "gloo" else parts_of(work))
    dist.barrier()
    dist.destroy_process_group()
    pipe.send(json.dumps(said))


def parts_of(work):
    report = work.operation.request.report()
    parts = {name: seconds * 1e3 for name, seconds in dataclasses.asdict(report.parts).items()}
    return {**parts, "repeated": report.packets_repeated / max(report.packets_sent, 1)}


def seconds_of_processor():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def measure(way, world, sizes):
    """By size: seconds of an all-reduce, processor seconds, and the parts of one."""
    context, port, ranks = multiprocessing.get_context("spawn"), free_port(), []
    for rank in range(world):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=be_rank, args=(rank, world, port, way, sizes, theirs))
        process.start()
        theirs.close()
        ranks.append((process, ours))
    said = [json.loads(pipe.recv()) for _, pipe in ranks]
    for process, _ in ranks:
        process.join()
    results = {}
    for megabytes in sizes:
        each = [rank[str(megabytes)] for rank in said]
        slowest = [max(times) for times in zip(*(times for times, _, _ in each))]
        results[megabytes] = (statistics.median(slowest), sum(used for _, used, _ in each), each[0][2])
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--megabytes", default="4,64,256")
    parser.add_argument("--ways", default="gloo,exact,5,8,5-cpu,8-cpu")
    parser.add_argument("--parts", action="store_true")
    arguments = parser.parse_args()
    os.environ["SPILLWAY_LIBRARY"] = str(arguments.library.resolve())
    sizes = [int(size) for size in arguments.megabytes.split(",")]
    print(f"{'way':8} {'MB':>5} {'ms':>9} {'GB/s':>7} {'CPU s/GB':>9}")
    for way in arguments.ways.split(","):
        for megabytes, (seconds, used, parts) in measure(way, arguments.ranks, sizes).items():
            moved = megabytes * 1e-3
            bus = 2 * (arguments.ranks - 1) / arguments.ranks * moved / seconds
            print(f"{way:8} {megabytes:5} {seconds * 1e3:9.2f} {bus:7.2f} {used / moved:9.2f}", flush=True)
            if arguments.parts and parts:
                print("         " + ", ".join(f"{name} {value:.2f}" for name, value in parts.items()), flush=True)


if __name__ == "__main__":
    main()
