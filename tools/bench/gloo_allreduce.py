# SPDX-License-Identifier: Apache-2.0
"""One rank of Gloo's all-reduce through torch.distributed, driven by lines.

    python3 gloo_allreduce.py RANK WORLD tcp://HOST:PORT

Says "ready" once the ranks have met. Then it answers every line of input

    TYPE OP COUNT WARMUP ITERATIONS IN_FLIGHT

with "times" and the seconds of each iteration at this rank, or with "error" and a sentence. It ends at the end of its
input. It waits without using the processor, so that it may stay while something else is measured.
"""
import sys
import time


def measure(torch, dist, line):
    kind, op, count, warmup, iterations, in_flight = line.split()
    dtype = getattr(torch, {"float": "float32", "double": "float64", "half": "float16"}.get(kind, kind))
    # Gloo has no average: its sum replaces it.
    reduction = getattr(dist.ReduceOp, {"avg": "SUM"}.get(op, op.upper()))
    tensors = [torch.ones(int(count), dtype=dtype) for _ in range(int(in_flight))]
    times = []
    dist.barrier()
    for _ in range(int(warmup) + int(iterations)):
        start = time.perf_counter()
        if len(tensors) == 1:
            dist.all_reduce(tensors[0], op=reduction)
        else:
            for work in [dist.all_reduce(tensor, op=reduction, async_op=True) for tensor in tensors]:
                work.wait()
        times.append(time.perf_counter() - start)
    return times[int(warmup):]


def main():
    rank, world, address = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        print("error", str(error).replace("\n", " "), flush=True)
        return
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            print("times", *measure(torch, dist, line), flush=True)
        except RuntimeError as error:
            print("error", str(error).splitlines()[0], flush=True)


main()
