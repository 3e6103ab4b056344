# SPDX-License-Identifier: Apache-2.0
"""Tensors of a CUDA device, at one rank of cuda_test.py. Ranks share the device."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import spillway.torch
from spillway import abi
from spillway.torch import Levels, Planes
from spillway.torch import tensors as spans
from spillway.torch.operation import Operation

CYCLES = 200_000_000  # of a kernel that keeps a stream busy for about 0.1 s

device = gloo = rank = world = None


def set_up():
    global device, gloo, rank, world
    dist.init_process_group("spillway")
    gloo = dist.new_group(backend="gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)


def tear_down():
    dist.barrier()
    dist.destroy_process_group()


def full(value, count=1000, dtype=torch.float32):
    return torch.full((count,), value, dtype=dtype, device=device)


def collectives():
    for dtype in [torch.float32, torch.float16, torch.bfloat16, torch.int64]:
        mine = full(rank + 1, dtype=dtype)
        dist.all_reduce(mine)
        assert torch.equal(mine, full(sum(range(world + 1)), dtype=dtype))
    for dtype in [torch.float32, torch.uint8]:
        mine = full(rank, 37, dtype)
        everybody = [full(9, 37, dtype) for _ in range(world)]
        dist.all_gather(everybody, mine)
        assert all(torch.equal(each, full(peer, 37, dtype)) for peer, each in enumerate(everybody))
        whole = full(9, 37 * world, dtype)
        dist.all_gather_into_tensor(whole, mine)
        assert torch.equal(whole, torch.cat(everybody))
        dist.broadcast(mine, src=1)
        assert torch.equal(mine, full(1, 37, dtype))
        swapped = full(9, 2 * world, dtype)
        dist.all_to_all_single(swapped, torch.arange(world, device=device).repeat_interleave(2).to(dtype) + 10 * rank)
        assert torch.equal(swapped, (10 * torch.arange(world, device=device).repeat_interleave(2) + rank).to(dtype))
    part = full(0, 5)
    dist.reduce_scatter_tensor(part, full(2, 5 * world))
    assert torch.equal(part, full(2 * world, 5))
    got = full(0, 11)
    sending = dist.isend(full(rank, 11), (rank + 1) % world)
    dist.recv(got, (rank - 1) % world)
    sending.wait()
    assert torch.equal(got, full((rank - 1) % world, 11))
    objects = [None] * world
    dist.all_gather_object(objects, rank)
    assert objects == list(range(world))


def values_are_taken_behind_what_the_stream_does_before():
    for stream in [torch.cuda.current_stream(device), torch.cuda.Stream(device)]:
        with torch.cuda.stream(stream):
            mine = full(0)
            torch.cuda._sleep(CYCLES)
            mine.fill_(rank + 1)
            dist.all_reduce(mine)
            doubled = mine * 2
        stream.synchronize()
        assert torch.equal(doubled, full(2 * sum(range(world + 1))))


def values_are_written_behind_what_the_stream_does_before():
    mine = full(rank)
    torch.cuda._sleep(CYCLES if rank != 0 else 0)
    before = mine * 1
    dist.broadcast(mine, src=0)
    assert torch.equal(before, full(rank)) and torch.equal(mine, full(0))


def operations_on_both_kinds_of_tensors_keep_their_order():
    works, tensors = [], []
    for number in range(20):
        tensor = full(number) if number % 2 else torch.full((10,), float(number))
        if number % 4 == 1:
            torch.cuda._sleep(CYCLES // 50)
        tensors.append(tensor)
        works.append(dist.all_reduce(tensor, async_op=True))
    for number, (work, tensor) in enumerate(zip(works, tensors)):
        work.wait()
        assert tensor[0].item() == number * world


def futures_are_ready_behind_the_copies():
    work = dist.all_reduce(full(1.0, 5_000_000), async_op=True)
    tripled = work.get_future().then(lambda done: done.value()[0] * 3)
    assert torch.equal(tripled.wait(), full(3.0 * world, 5_000_000))


def trained(group, steps=4, attach=None):
    torch.manual_seed(7)
    layers = [torch.nn.Linear(40, 400), torch.nn.ReLU(), torch.nn.Linear(400, 700), torch.nn.ReLU(),
              torch.nn.Linear(700, 10)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(device), process_group=group,
                                    device_ids=[device.index], bucket_cap_mb=0.05)
    hook = attach(model) if attach else None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        inputs = torch.randn(16, 40, generator=torch.Generator().manual_seed(1000 * step + rank)).to(device)
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()]).cpu(), hook


def assert_same_everywhere(values):
    everybody = [torch.empty_like(values) for _ in range(world)]
    dist.all_gather(everybody, values, group=gloo)
    assert all(torch.equal(values, other) for other in everybody)


def training_is_close_to_gloo_and_the_same_everywhere():
    ours, _ = trained(None)
    reference, _ = trained(gloo)
    assert torch.allclose(ours, reference, rtol=1e-3, atol=1e-5), (ours - reference).abs().max()
    assert_same_everywhere(ours)


def a_hook():
    for group in (None, gloo):
        ours, hook = trained(group, attach=lambda model: spillway.torch.attach(model, Planes(16), measure_every=1))
        reference, _ = trained(gloo)
        assert torch.allclose(ours, reference, rtol=1e-2, atol=1e-3), (ours - reference).abs().max()
        assert_same_everywhere(ours)
        report = hook.report()
        assert report.contributors == world and report.buckets > 1 and 0 < report.nmse < 1e-6, report


def a_forward_pass_that_overlaps_has_the_bits_of_ddp():
    """The widest layer is copied in pieces; the others go through the host as a whole."""
    def weights(wrap):
        torch.manual_seed(9)
        layers = [torch.nn.Linear(100, 600), torch.nn.BatchNorm1d(600), torch.nn.ReLU(), torch.nn.Linear(600, 600),
                  torch.nn.Linear(600, 10)]
        module = torch.nn.Sequential(*layers).to(device)
        model, optimizer = wrap(module, torch.optim.AdamW(module.parameters(), lr=0.01))
        for step in range(20):
            optimizer.zero_grad()
            inputs = torch.randn(16, 100, generator=torch.Generator().manual_seed(100 * step + rank)).to(device)
            model(inputs).square().mean().backward()
            if step % 7 == 3:
                torch.nn.utils.clip_grad_norm_(module.parameters(), 0.1)
            optimizer.step()
        return torch.cat([each.detach().reshape(-1) for each in module.parameters()])

    ours = weights(spillway.torch.overlap)
    assert torch.equal(ours, weights(lambda module, optimizer: (DistributedDataParallel(module), optimizer)))
    assert_same_everywhere(ours.cpu())


def ranks_whose_gpu_codes_and_others_end_with_the_same_bytes():
    spans.allow_gpu_coding(rank != 0)
    assert spans.is_coder(device) == (rank != 0)
    for feedback in (True, False):
        ours, hook = trained(None, attach=lambda model: spillway.torch.attach(
            model, Planes(12), error_feedback=feedback, measure_every=1))
        reference, _ = trained(gloo)
        assert torch.allclose(ours, reference, rtol=1e-2, atol=1e-2), (ours - reference).abs().max()
        assert_same_everywhere(ours)
        report = hook.report()
        assert report.contributors == world and 0 < report.nmse < 1e-4, report
        assert_says_what_was_coded_where(report)


def assert_says_what_was_coded_where(report):
    """The CPU coded at rank 0, with copies of values; the GPU at the others."""
    by_gpu, by_cpu = (0, report.gradient_bytes) if rank == 0 else (report.gradient_bytes, 0)
    assert (report.gpu_bytes, report.cpu_bytes) == (by_gpu, by_cpu), report
    parts = report.parts
    assert min(parts.encode, parts.to_host, parts.exchange, parts.to_device, parts.decode) > 0, parts
    assert (parts.gpu_wait > 0) == (rank != 0), parts


def a_gpu_codes_behind_what_the_stream_does_before():
    spans.allow_gpu_coding(True)
    assert spans.is_coder(device)
    member = spillway.torch.ddp_hook.member_of(dist.group.WORLD)
    for dtype in [torch.float32, torch.bfloat16, torch.float16]:
        options = abi.default_library().tolerant_options(loss_bound=0.0, precision=16, gather_precision=16)
        mine = full(0, 3_000_001, dtype)
        torch.cuda._sleep(CYCLES)
        mine.copy_(torch.randn(mine.shape, generator=torch.Generator().manual_seed(rank)).to(dtype))
        span = spans.span_of(mine, "all_reduce", options, world)
        assert isinstance(span, spans.DeviceSpan)
        Operation("all_reduce", span, span, span.pointer, span.pointer, span.count, span.type, abi.SUM,
                  options=options).start(member).wait()
        exact = sum(torch.randn(mine.shape, generator=torch.Generator().manual_seed(peer)).to(dtype).float()
                    for peer in range(world))
        error = (mine.float().cpu() - exact).square().sum() / exact.square().sum()
        assert error < (1e-5 if dtype == torch.bfloat16 else 1e-6), (dtype, error)
        assert_same_everywhere(mine.float().cpu())


def levels_are_coded_by_the_gpu_and_the_same_everywhere():
    spans.allow_gpu_coding(rank != 0)
    for is_predicted in (False, True):
        ours, hook = trained(None, steps=6, attach=lambda model: spillway.torch.attach(
            model, Levels(8, predicted_scale=is_predicted), measure_every=1))
        reference, _ = trained(gloo, steps=6)
        assert torch.allclose(ours, reference, rtol=1e-2, atol=3e-2), (ours - reference).abs().max()
        assert_same_everywhere(ours)
        report = hook.report()
        assert report.codec == "levels" and 0 < report.nmse < 1e-2, report
        assert_says_what_was_coded_where(report)


def reduce_coded(tensor, member):
    options = abi.default_library().tolerant_options(loss_bound=0.0, precision=16, gather_precision=16)
    span = spans.span_of(tensor, "all_reduce", options, world)
    assert isinstance(span, spans.DeviceSpan)
    return Operation("all_reduce", span, span, span.pointer, span.pointer, span.count, span.type, abi.SUM,
                     options=options).start(member)


def exact_all_reduces_are_copied_in_pieces_and_right():
    """Rank 0 copies its tensors as a whole."""
    spans.allow_gpu_coding(rank != 0)
    works, tensors = [], []
    for dtype in [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.float32]:
        tensor = full(0, 5_000_003, dtype)
        span = spans.span_of(tensor, "all_reduce", abi.default_library().options(), world)
        assert isinstance(span, spans.DeviceSpan) == (rank != 0)
        torch.cuda._sleep(CYCLES // 10)
        tensor.copy_(torch.arange(tensor.numel(), device=device) % 31 + rank)
        tensors.append(tensor)
        works.append(dist.all_reduce(tensor, async_op=True))
    for work, tensor in zip(works, tensors):
        work.wait()
        expected = (torch.arange(tensor.numel(), device=device) % 31) * world + sum(range(world))
        assert torch.equal(tensor, expected.to(tensor.dtype)), tensor.dtype
    parts = works[0].operation.request.report().parts
    assert (parts.to_host > 0 and parts.to_device > 0) == (rank != 0), parts


def several_streams_reduce_at_once():
    spans.allow_gpu_coding(True)
    member = spillway.torch.ddp_hook.member_of(dist.group.WORLD)
    streams = [torch.cuda.Stream(device) for _ in range(4)]
    tensors, operations, results = [], [], []
    for round_ in range(3):
        for number, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(CYCLES // (10 * (number + 1)))
                tensors.append(torch.full((500_001,), float(round_ * 4 + number + rank), device=device))
                operations.append(reduce_coded(tensors[-1], member))
    for number, operation in enumerate(operations):
        operation.wait()
        with torch.cuda.stream(streams[(number + 1) % 4]):  # visible to every stream
            results.append((tensors[number] * 2).mean())
    torch.cuda.synchronize()
    for number, result in enumerate(results):
        expected = 2 * (number * world + sum(range(world)))
        assert abs(result.item() - expected) <= 1e-3 * expected + 1e-3, (number, result.item(), expected)


def graphs_are_captured_and_replayed_beside_and_around_all_reduces():
    spans.allow_gpu_coding(True)
    member = spillway.torch.ddp_hook.member_of(dist.group.WORLD)
    before, behind = torch.full((300_001,), 1.0, device=device), torch.zeros(300_001, device=device)
    under_way = torch.full((4_000_001,), float(rank), device=device)
    torch.cuda.synchronize()
    operation = reduce_coded(under_way, member)  # while graphs are captured
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        before.add_(1.0)
    with torch.cuda.graph(second):
        behind.copy_(before * 2)
    operation.wait()
    assert abs(under_way.mean().item() - sum(range(world))) < 1e-2
    value = 1.0
    for _ in range(3):
        first.replay()
        reduce_coded(before, member).wait()
        second.replay()
        value = (value + 1.0) * world
        torch.cuda.synchronize()
        assert abs(behind.mean().item() - 2 * value) <= 1e-3 * value, (behind.mean().item(), value)


def an_operation_in_a_graph_is_refused_with_a_sentence():
    mine = full(rank, 100_000)
    stream = torch.cuda.Stream(device)
    for kind in (torch.float32, torch.int64):
        said = ""
        try:
            with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
                mine.add_(0.0)
                dist.all_reduce(mine.to(kind))
        except RuntimeError as error:
            said = str(error)
        assert "cannot be captured in a CUDA graph" in said, said
    torch.cuda.synchronize()
    dist.all_reduce(mine)
    assert torch.equal(mine, full(sum(range(world)), 100_000))


SCENARIOS = [collectives, values_are_taken_behind_what_the_stream_does_before,
             values_are_written_behind_what_the_stream_does_before,
             operations_on_both_kinds_of_tensors_keep_their_order, futures_are_ready_behind_the_copies,
             training_is_close_to_gloo_and_the_same_everywhere, a_hook,
             a_forward_pass_that_overlaps_has_the_bits_of_ddp,
             ranks_whose_gpu_codes_and_others_end_with_the_same_bytes, a_gpu_codes_behind_what_the_stream_does_before,
             levels_are_coded_by_the_gpu_and_the_same_everywhere, exact_all_reduces_are_copied_in_pieces_and_right,
             several_streams_reduce_at_once,
             graphs_are_captured_and_replayed_beside_and_around_all_reduces,
             an_operation_in_a_graph_is_refused_with_a_sentence]
