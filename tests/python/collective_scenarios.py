# SPDX-License-Identifier: Apache-2.0
"""Every collective of the backend against Gloo's, at one rank of torch_test.py."""
import datetime
import gc
import os
import tempfile

import torch
import torch.distributed as dist

import spillway.torch
from harness.patience import patience
from spillway.torch.process_group import takes_backends
from spillway.torch.rendezvous import join_through_store

COUNT = 1000
# Types that travel as themselves, and types that can only be moved.
INTEGERS = [torch.int32, torch.int64, torch.int8, torch.uint8]
REDUCIBLE = [torch.float32, torch.float64, torch.float16, torch.bfloat16, *INTEGERS]
MOVABLE = [torch.bool, torch.int16, torch.complex64, torch.complex128]
GLOO_LACKS = [torch.bfloat16, torch.bool]  # in some releases

gloo = None
rank = world = None


def set_up():
    global gloo, rank, world
    dist.init_process_group("spillway")
    gloo = dist.new_group(backend="gloo")
    rank, world = dist.get_rank(), dist.get_world_size()


def tear_down():
    dist.barrier()
    dist.destroy_process_group()


def values(dtype, count=COUNT, of=None):
    """A rank's values, the same in every call: small whole numbers, which all types represent and add exactly."""
    generator = torch.Generator().manual_seed(rank if of is None else of)
    return torch.randint(0, 2 if dtype == torch.bool else 9, (count,), generator=generator).to(dtype)


def assert_equal(left, right):
    assert left.dtype == right.dtype and torch.equal(left, right), (left, right)


def refuses(error, words, call):
    try:
        call()
    except error as caught:
        assert all(word in str(caught) for word in words), caught
        return
    raise AssertionError(f"not refused: {words}")


def all_reduce_of_every_type_and_reduction():
    for dtype in REDUCIBLE:
        everybody = torch.stack([values(dtype, of=peer).double() for peer in range(world)])
        for op, expected in [(dist.ReduceOp.SUM, everybody.sum(0)), (dist.ReduceOp.MIN, everybody.min(0).values),
                             (dist.ReduceOp.MAX, everybody.max(0).values),
                             (dist.ReduceOp.PRODUCT, everybody.prod(0))]:
            mine = values(dtype)
            dist.all_reduce(mine, op=op)
            assert_equal(mine, expected.to(torch.int64).to(dtype))
            if dtype not in GLOO_LACKS:
                reference = values(dtype)
                dist.all_reduce(reference, op=op, group=gloo)
                assert_equal(mine, reference)
        if dtype.is_floating_point:
            mine = values(dtype).double().to(dtype)
            dist.all_reduce(mine, op=dist.ReduceOp.AVG)
            assert torch.allclose(mine.double(), everybody.mean(0), rtol=1e-2)


def reductions_of_integers_wrap_around_and_meet_bit_by_bit_as_gloos_do():
    for dtype in INTEGERS:
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.BAND,
                   dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
            mine, reference = any_bits(dtype), any_bits(dtype)
            dist.all_reduce(mine, op=op)
            dist.all_reduce(reference, op=op, group=gloo)
            assert_equal(mine, reference)
            mine, reference = any_bits(dtype), any_bits(dtype)
            dist.reduce(mine, dst=1, op=op)
            dist.reduce(reference, dst=1, op=op, group=gloo)
            assert rank != 1 or torch.equal(mine, reference)
            part, whole = torch.zeros(COUNT // world, dtype=dtype), any_bits(dtype)[:COUNT // world * world]
            dist.reduce_scatter_tensor(part, whole, op=op)
            dist.all_reduce(whole, op=op, group=gloo)
            assert_equal(part, whole.chunk(world)[rank])


def any_bits(dtype):
    """A rank's bits, the same in every call."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(-2**62, 2**62, (COUNT,), generator=generator).to(dtype)


def products_of_floats_are_those_of_gloo():
    for dtype in (torch.float32, torch.float64):
        generator = torch.Generator().manual_seed(rank)
        mine = torch.randn(COUNT, generator=generator, dtype=dtype)
        reference = mine.clone()
        dist.all_reduce(mine, op=dist.ReduceOp.PRODUCT)
        dist.all_reduce(reference, op=dist.ReduceOp.PRODUCT, group=gloo)
        assert torch.allclose(mine, reference, rtol=1e-5)


def averages_of_integers_drop_fractions():
    for dtype in INTEGERS:
        everybody = torch.stack([values(dtype, of=peer).long() for peer in range(world)])
        expected = everybody.sum(0).div(world, rounding_mode="trunc").to(dtype)
        mine = values(dtype)
        dist.all_reduce(mine, op=dist.ReduceOp.AVG)
        assert_equal(mine, expected)
        mine = values(dtype)
        work = dist.all_reduce(mine, op=dist.ReduceOp.AVG, async_op=True)
        while not work.is_completed():
            pass
        assert_equal(mine, expected)
        mine = values(dtype)
        dist.reduce(mine, 1, op=dist.ReduceOp.AVG)
        assert_equal(mine, expected if rank == 1 else values(dtype))
        part = torch.empty(COUNT // 4, dtype=dtype)
        inputs = [values(dtype)[:COUNT // 4] + peer for peer in range(world)]
        dist.reduce_scatter(part, inputs, op=dist.ReduceOp.AVG)
        sums = sum(values(dtype, of=peer)[:COUNT // 4].long() + rank for peer in range(world))
        assert_equal(part, sums.div(world, rounding_mode="trunc").to(dtype))
    mine = torch.tensor([-5 if rank == 0 else 0])
    dist.all_reduce(mine, op=dist.ReduceOp.AVG)
    assert mine.item() == -(5 // world)


def bools_stay_bools():
    everybody = torch.stack([values(torch.bool, of=peer) for peer in range(world)])
    odd = everybody.sum(0) % 2 == 1
    for op, expected in [(dist.ReduceOp.SUM, everybody.any(0)), (dist.ReduceOp.MAX, everybody.any(0)),
                         (dist.ReduceOp.BOR, everybody.any(0)), (dist.ReduceOp.PRODUCT, everybody.all(0)),
                         (dist.ReduceOp.MIN, everybody.all(0)), (dist.ReduceOp.BAND, everybody.all(0)),
                         (dist.ReduceOp.BXOR, odd)]:
        mine = values(torch.bool)
        dist.all_reduce(mine, op=op)
        assert_equal(mine, expected)
        assert mine.view(torch.uint8).max() <= 1
        # Gloo gets bytes; true and false must be in the same places.
        reference = values(torch.bool).to(torch.uint8)
        dist.all_reduce(reference, op=op, group=gloo)
        assert_equal(mine, reference.to(torch.bool))


def sparse(dtype=torch.float32, shape=(50, 7), entries=20, of=None):
    """A rank's tensor, not coalesced, the same in every call."""
    generator = torch.Generator().manual_seed(rank if of is None else of)
    indices = torch.randint(0, shape[0], (1, entries), generator=generator)
    numbers = torch.randint(-9, 9, (entries, *shape[1:]), generator=generator).to(dtype)
    return torch.sparse_coo_tensor(indices, numbers, shape)


def sparse_tensors_are_added_up_as_gloos_are():
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8):
        mine, reference = sparse(dtype, entries=20 * rank), sparse(dtype, entries=20 * rank)
        dist.all_reduce(mine)
        dist.all_reduce(reference, group=gloo)
        assert mine.is_sparse and mine.is_coalesced()
        assert_equal(mine.indices(), reference.coalesce().indices())
        assert_equal(mine.values(), reference.coalesce().values())
    mine, reference = sparse(torch.float32), sparse(torch.float32)
    for each, group in ((mine, None), (reference, gloo)):
        each.mul_(1 / 3)
        dist.all_reduce(each, group=group)
    assert_equal(mine.values(), reference.coalesce().values())  # to the last bit
    for dtype in (torch.float16, torch.bfloat16, torch.int16):  # this Gloo lacks them
        mine = sparse(dtype)
        dist.all_reduce(mine)
        assert_equal(mine.to_dense(), sum(sparse(of=peer).to_dense() for peer in range(world)).to(dtype))
    both = torch.sparse_coo_tensor([[rank], [1]], [2.0], (world, 3))
    dist.all_reduce(both)
    assert_equal(both.to_dense(), torch.tensor([[0.0, 2.0, 0.0]] * world))
    nothing = torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.int64), torch.zeros(0), (4,))
    dist.all_reduce(nothing)
    assert nothing._nnz() == 0


def sparse_all_reduces_keep_their_turn():
    for _ in range(20):
        mine, then = sparse(), torch.ones(10)
        work = dist.all_reduce(mine, async_op=True)
        later = dist.all_reduce(then, async_op=True)
        again = dist.all_reduce(sparse(), async_op=True)
        later.wait()
        assert_equal(then, torch.full((10,), float(world)))
        assert_equal(work.get_future().wait()[0].to_dense(), sum(sparse(of=peer).to_dense() for peer in range(world)))
        assert again.wait() and again.is_completed() and again.is_success()


def sparse_tensors_that_differ_are_named():
    shape = (50, 7) if rank != 1 else (40, 7)
    refuses(ValueError, ["alike", "rank 0's is (50, 7)", "rank 1's (40, 7)"],
            lambda: dist.all_reduce(sparse(shape=shape)))
    dense = torch.ones(3)  # the group is still usable
    dist.all_reduce(dense)
    assert_equal(dense, torch.full((3,), float(world)))
    refuses(ValueError, ["sums alone"], lambda: dist.all_reduce(sparse(), op=dist.ReduceOp.MAX))
    refuses((TypeError, NotImplementedError), ["parse"], lambda: dist.broadcast(sparse(), src=0))  # or torch refuses


def lazily_conjugated_and_negated_tensors_are_resolved():
    numbers = torch.tensor([1 + 2j, 3 - 4j, 5j])
    mine = (numbers * (rank + 1)).conj()
    assert mine.is_conj()
    everybody = [torch.zeros(3, dtype=numbers.dtype) for _ in range(world)]
    dist.group.WORLD.allgather([everybody], [mine]).wait()  # torch's own function accepts them only in part
    for peer in range(world):
        assert_equal(everybody[peer], (numbers * (peer + 1)).conj().resolve_conj())
    got, after, before = torch.zeros(3), (rank + 1) % world, (rank - 1) % world
    sending = dist.isend((numbers * (rank + 1)).conj().imag, after)
    dist.recv(got, before)
    sending.wait()
    assert_equal(got, torch.tensor([-2.0, 4.0, -5.0]) * (before + 1))
    if takes_backends():
        return  # torch's own dispatcher resolves tensors into copies, and in-place results stay there, as with Gloo
    # In place, with the conjugate bit at some ranks only: a rank reads the value that was sent.
    mine = (numbers * (rank + 1)).conj() if rank != 1 else numbers * 2
    physical = mine.conj() if rank != 1 else mine
    dist.broadcast(mine, src=1)
    assert_equal(mine.resolve_conj(), numbers * 2)
    assert_equal(physical.resolve_conj(), (numbers * 2).conj().resolve_conj() if rank != 1 else numbers * 2)
    for negated in (numbers.clone().conj().imag, torch._neg_view(torch.tensor([2.0, -4.0, 5.0]))):
        assert negated.is_neg()
        dist.all_reduce(negated)
        assert_equal(negated.resolve_neg(), torch.tensor([-2.0, 4.0, -5.0]) * world)


def all_reduce_of_random_floats_is_close_to_gloo_and_the_same_everywhere():
    mine = torch.randn(100_003, generator=torch.Generator().manual_seed(rank))
    reference = mine.clone()
    dist.all_reduce(mine)
    dist.all_reduce(reference, group=gloo)
    assert torch.allclose(mine, reference, rtol=1e-5, atol=1e-6)
    everybody = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(everybody, mine, group=gloo)
    assert all(torch.equal(mine, other) for other in everybody)


def broadcasts():
    for dtype in REDUCIBLE + MOVABLE:
        for root in range(world):
            mine = values(dtype, 37)
            dist.broadcast(mine, src=root)
            assert_equal(mine, values(dtype, 37, of=root))


def all_gathers():
    for dtype in REDUCIBLE + MOVABLE:
        everybody = [torch.zeros(37, dtype=dtype) for _ in range(world)]
        dist.all_gather(everybody, values(dtype, 37))
        for peer in range(world):
            assert_equal(everybody[peer], values(dtype, 37, of=peer))
        whole = torch.zeros(world * 37, dtype=dtype)
        dist.all_gather_into_tensor(whole, values(dtype, 37))
        assert_equal(whole, torch.cat(everybody))


def reduce_scatters():
    for dtype in [torch.float32, torch.int64]:
        whole = values(dtype, world * 37)
        total = whole.clone()
        dist.all_reduce(total, group=gloo)
        mine = torch.zeros(37, dtype=dtype)
        dist.reduce_scatter(mine, list(whole.chunk(world)))
        assert_equal(mine, total.chunk(world)[rank])
        mine.zero_()
        dist.reduce_scatter_tensor(mine, whole)
        assert_equal(mine, total.chunk(world)[rank])


def gathers_and_scatters():
    for dtype in [torch.float32, torch.uint8]:
        for root in range(world):
            everybody = [torch.zeros(37, dtype=dtype) for _ in range(world)] if rank == root else None
            dist.gather(values(dtype, 37), everybody, dst=root)
            if rank == root:
                for peer in range(world):
                    assert_equal(everybody[peer], values(dtype, 37, of=peer))
            parts = list(values(dtype, world * 37).chunk(world)) if rank == root else None
            mine = torch.zeros(37, dtype=dtype)
            dist.scatter(mine, parts, src=root)
            assert_equal(mine, values(dtype, world * 37, of=root).chunk(world)[rank])


def reduces():
    for root in range(world):
        mine, reference = values(torch.float32), values(torch.float32)
        dist.reduce(mine, dst=root)
        dist.reduce(reference, dst=root, group=gloo)
        if rank == root:
            assert_equal(mine, reference)
        else:
            assert_equal(mine, values(torch.float32))


def all_to_alls():
    for dtype in [torch.float32, torch.uint8]:
        sizes = [[(source + 2 * target) % 5 for target in range(world)] for source in range(world)]
        inputs = [torch.full((sizes[rank][peer],), 10 * rank + peer).to(dtype) for peer in range(world)]
        outputs = [torch.zeros(sizes[peer][rank], dtype=dtype) for peer in range(world)]
        dist.all_to_all(outputs, inputs)
        expected = [torch.full((sizes[peer][rank],), 10 * peer + rank).to(dtype) for peer in range(world)]
        for got, wanted in zip(outputs, expected):
            assert_equal(got, wanted)
        whole = torch.zeros(sum(map(len, outputs)), dtype=dtype)
        dist.all_to_all_single(whole, torch.cat(inputs), list(map(len, outputs)), list(map(len, inputs)))
        assert_equal(whole, torch.cat(expected))
        even = torch.zeros(world * 3, dtype=dtype)
        dist.all_to_all_single(even, torch.arange(world).repeat_interleave(3).to(dtype) + 10 * rank)
        assert_equal(even, (10 * torch.arange(world).repeat_interleave(3) + rank).to(dtype))


def sends_and_receives():
    after, before = (rank + 1) % world, (rank - 1) % world
    for dtype in [torch.float64, torch.uint8, torch.bool]:
        got = torch.zeros(101, dtype=dtype)
        sending = dist.isend(values(dtype, 101), after)
        dist.recv(got, before)
        sending.wait()
        assert_equal(got, values(dtype, 101, of=before))
    got = torch.zeros(11)
    batch = [dist.P2POp(dist.isend, values(torch.float32, 11), after), dist.P2POp(dist.irecv, got, before)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    assert_equal(got, values(torch.float32, 11, of=before))


def tags_are_received_in_any_order():
    after, before = (rank + 1) % world, (rank - 1) % world
    for count in (5, 200_000):  # the larger ones are sent only on request
        for tags in ([1, 2, 3], [3, 1, 2], [2, 0, 2]):
            sending = [dist.isend(torch.full((count,), float(10 * rank + at)), after, tag=tag)
                       for at, tag in enumerate(tags)]
            for tag in sorted(set(tags), reverse=True):
                for at in (at for at, sent in enumerate(tags) if sent == tag):
                    got = torch.zeros(count)
                    assert dist.recv(got, before, tag=tag) == before
                    assert_equal(got, torch.full((count,), float(10 * before + at)))
            for work in sending:
                work.wait()
    got = [torch.zeros(3), torch.zeros(3)]
    receiving = [dist.irecv(got[0], before, tag=7), dist.irecv(got[1], before, tag=8)]
    dist.send(torch.full((3,), 8.0), after, tag=8)
    dist.send(torch.full((3,), 7.0), after, tag=7)
    for work in receiving:
        work.wait()
    assert [each[0].item() for each in got] == [7.0, 8.0]


def receives_from_any_rank():
    if rank == 0:
        heard = []
        for _ in range(2 * (world - 1)):
            got = torch.zeros(1000, dtype=torch.int64)
            source = dist.recv(got)
            assert_equal(got, torch.full((1000,), 100 * source + heard.count(source)))
            heard.append(source)
        assert sorted(heard) == sorted(2 * list(range(1, world)))
        dist.barrier()  # otherwise a receive from any rank might get what follows
        got = torch.zeros(2)
        assert dist.recv(got, tag=5) == 2 and got[0] == 5.0  # a message from a named rank waits for its own receive
        assert dist.recv(got, src=2) == 2 and got[0] == 4.0
    else:
        for at in range(2):
            dist.send(torch.full((1000,), 100 * rank + at), 0)
        dist.barrier()
        if rank == 2:
            waits = dist.isend(torch.full((2,), 4.0), 0)
            dist.send(torch.full((2,), 5.0), 0, tag=5)
            waits.wait()
    dist.barrier()
    if rank == 0:  # a receive from any rank takes nothing from a later all_to_all
        got = torch.zeros(4)
        receiving = dist.group.WORLD.recv_anysource([got], 0)
    outputs = [torch.zeros(peer + 1) for peer in range(world)]
    dist.all_to_all(outputs, [torch.full((rank + 1,), float(rank)) for _ in range(world)])
    assert all(torch.equal(output, torch.full((peer + 1,), float(peer))) for peer, output in enumerate(outputs))
    if rank == 1:
        dist.send(torch.ones(4), 0)
    if rank == 0:
        receiving.wait()
        assert receiving._source_rank() == 1 and got.sum() == 4


def barriers_that_are_watched():
    spillway.torch.monitored_barrier()
    spillway.torch.monitored_barrier(timeout=datetime.timedelta(hours=1), wait_all_ranks=True)
    spillway.torch.monitored_barrier(gloo, datetime.timedelta(seconds=patience()))
    pair = dist.new_group([0, 2])
    if rank in (0, 2):
        spillway.torch.monitored_barrier(pair)


def objects():
    everybody = [None] * world
    dist.all_gather_object(everybody, {"rank": rank, "text": "x" * (rank * 7)})
    assert everybody == [{"rank": peer, "text": "x" * (peer * 7)} for peer in range(world)]
    carried = [("from", rank), rank]
    dist.broadcast_object_list(carried, src=1)
    assert carried == [("from", 1), 1]
    got = [None]
    dist.scatter_object_list(got, [f"for {peer}" for peer in range(world)] if rank == 0 else None, src=0)
    assert got == [f"for {rank}"]


def tensors_that_are_not_contiguous():
    columns = torch.arange(12.0).view(3, 4).t()
    mine = (columns + rank)
    assert not mine.is_contiguous()
    dist.all_reduce(mine)
    assert_equal(mine, columns * world + sum(range(world)))
    every_other = torch.zeros(40)[::2]
    dist.broadcast(every_other.copy_(torch.full((20,), float(rank))), src=2)
    assert_equal(every_other, torch.full((20,), 2.0))
    outputs = [torch.zeros(6, 2).t() for _ in range(world)]
    dist.all_gather(outputs, torch.full((2, 6), float(rank)))
    assert all(torch.equal(output, torch.full((2, 6), float(peer))) for peer, output in enumerate(outputs))
    whole = torch.zeros(5, world, dtype=torch.uint8).t()
    dist.all_gather_into_tensor(whole, torch.full((5,), rank, dtype=torch.uint8))
    assert_equal(whole, torch.arange(world, dtype=torch.uint8).view(-1, 1).expand(world, 5))


def empty_tensors_and_scalars():
    for dtype in [torch.float32, torch.uint8]:
        empty = torch.zeros(0, dtype=dtype)
        dist.broadcast(empty, src=0)
        dist.all_gather([torch.zeros(0, dtype=dtype) for _ in range(world)], empty)
        dist.all_gather_into_tensor(torch.zeros(0, dtype=dtype), empty)
        dist.all_to_all_single(torch.zeros(0, dtype=dtype), empty)
    dist.all_reduce(torch.zeros(0, 3))
    scalar = torch.tensor(float(rank))
    dist.all_reduce(scalar)
    assert scalar.item() == sum(range(world))


def parameters_that_need_gradients():
    parameter = torch.nn.Parameter(torch.full((7,), float(rank)))
    dist.broadcast(parameter.data, src=1)
    dist.all_reduce(parameter)
    assert_equal(parameter.detach(), torch.full((7,), float(world)))
    everybody = [torch.zeros(7) for _ in range(world)]
    dist.all_gather(everybody, torch.nn.Parameter(torch.full((7,), float(rank))))
    assert [each[0].item() for each in everybody] == list(range(world))


def asynchronous_operations():
    tensors = [torch.full((2000,), float(rank + index)) for index in range(64)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for index, (tensor, work) in enumerate(zip(tensors, works)):
        assert work.wait() and work.is_completed() and work.is_success()
        assert tensor[0].item() == sum(range(world)) + world * index
    dist.all_reduce(torch.ones(500, 200).t(), async_op=True)  # nobody waits for it
    gc.collect()
    work = dist.all_reduce(torch.ones(6, 2).t(), async_op=True)
    while not work.is_completed():
        pass
    assert_equal(work.result()[0], torch.full((2, 6), float(world)))


def futures():
    work = dist.all_reduce(torch.ones(10), async_op=True)
    assert_equal(work.get_future().then(lambda done: done.value()[0] * 2).wait(), torch.full((10,), 2.0 * world))

    def second(first):
        """Waits for another operation in a callback, as PowerSGD's hook does."""
        return dist.all_reduce(first.value()[0], async_op=True).get_future().wait()[0]

    chained = dist.all_reduce(torch.ones(10), async_op=True).get_future().then(second)
    assert_equal(chained.wait(), torch.full((10,), float(world * world)))


def a_future_does_not_wait_for_an_earlier_one():
    """A receive is under way; its message is sent after a later all-reduce has ended."""
    got = torch.zeros(5)
    if rank == 0:
        receiving = dist.irecv(got, 1).get_future()
        dist.all_reduce(torch.ones(5), async_op=True).get_future().wait()
        assert not receiving.done()
        dist.barrier()
        receiving.wait()
        assert_equal(got, torch.full((5,), 4.0))
    else:
        dist.all_reduce(torch.ones(5), async_op=True).get_future().wait()
        dist.barrier()
        if rank == 1:
            dist.send(torch.full((5,), 4.0), 0)


def several_at_once():
    group = dist.group.WORLD
    tensors = [torch.full((3,), float(rank)), torch.full((5,), 1.0)]
    group.allreduce_coalesced(tensors).wait()
    assert tensors[0][0].item() == sum(range(world)) and tensors[1][0].item() == world
    outputs = [torch.zeros(world * 2), torch.zeros(world)]
    group.allgather_into_tensor_coalesced(outputs, [torch.full((2,), float(rank)), torch.ones(1)]).wait()
    assert outputs[0].tolist() == [peer for peer in range(world) for _ in range(2)] and outputs[1].sum() == world


def functional_collectives_where_torch_has_them():
    try:
        import torch.distributed._functional_collectives as functional
    except ImportError:
        return
    group = dist.group.WORLD
    total = functional.wait_tensor(functional.all_reduce(torch.full((4,), float(rank)), "sum", group))
    assert_equal(total, torch.full((4,), float(sum(range(world)))))
    whole = functional.wait_tensor(functional.all_gather_tensor(torch.full((2,), float(rank)), 0, group))
    assert whole.tolist() == [peer for peer in range(world) for _ in range(2)]
    part = functional.wait_tensor(functional.reduce_scatter_tensor(torch.ones(2 * world), "sum", 0, group))
    assert_equal(part, torch.full((2,), float(world)))


def ranks_that_meet_twice_through_one_store():
    path = os.path.join(tempfile.gettempdir(), f"spillway-store-{os.environ['MASTER_PORT']}")
    store = dist.FileStore(path, world)
    for _ in range(2):
        join_through_store(store, rank, world, datetime.timedelta(seconds=patience()), "again").close()
    dist.barrier()
    if rank == 0:
        os.unlink(path)


def calls_on_the_group_itself():
    """As C++ and some libraries call them: without options, or with a root in their place."""
    group = dist.group.WORLD
    mine = torch.full((3,), float(rank))
    group.allreduce([mine]).wait()
    assert_equal(mine, torch.full((3,), float(sum(range(world)))))
    group.broadcast(mine.fill_(rank), 1).wait()
    assert_equal(mine, torch.ones(3))
    group.reduce(mine, 2).wait()
    assert_equal(mine, torch.full((3,), float(world) if rank == 2 else 1.0))
    assert group.rank() == rank and group.size() == world and dist.get_backend(group) == "spillway"


def sub_groups():
    pair = dist.new_group([0, 2])
    everybody = dist.new_group(list(range(world)))
    if rank in (0, 2):
        mine = torch.full((9,), float(rank))
        dist.all_reduce(mine, group=pair)
        assert_equal(mine, torch.full((9,), 2.0))
        dist.broadcast(mine.fill_(rank), src=2, group=pair)
        assert_equal(mine, torch.full((9,), 2.0))
        assert dist.get_rank(pair) == [0, 2].index(rank)
    mine = torch.ones(9)
    dist.all_reduce(mine, group=everybody)
    assert_equal(mine, torch.full((9,), float(world)))
    if rank == 2:
        dist.send(torch.ones(4), 0, group=pair)
    if rank == 0:
        got = torch.zeros(4)
        dist.recv(got, 2, group=pair)
        assert_equal(got, torch.ones(4))
    if rank == 2:
        dist.send(torch.ones(4), 0, group=pair)
    if rank == 0:
        assert dist.recv(got.zero_(), group=pair) == 2  # the job's rank, not the group's
        assert_equal(got, torch.ones(4))


def what_it_does_not_have_is_refused():
    ones = torch.ones(4)
    refuses(TypeError, ["BAND", "integers"], lambda: dist.all_reduce(ones, op=dist.ReduceOp.BAND))
    refuses(TypeError, ["torch.int16", "Convert"], lambda: dist.all_reduce(torch.ones(4, dtype=torch.int16)))
    refuses(TypeError, ["average"], lambda: dist.all_reduce(ones.bool(), op=dist.ReduceOp.AVG))
    refuses((TypeError, NotImplementedError), ["parse"], lambda: dist.all_reduce(torch.ones(2, 2).to_sparse_csr()))
    refuses(ValueError, ["tag -1"], lambda: dist.send(ones, (rank + 1) % world, tag=-1))
    refuses((ValueError, TypeError), [str(2**32)], lambda: dist.irecv(ones, (rank + 1) % world, tag=2**32))
    refuses(spillway.torch.SpillwayError, ["nothing"], lambda: dist.recv(torch.ones(0)))
    refuses(ValueError, [f"{world} ranks"], lambda: dist.all_to_all([ones], [ones]))
    refuses(ValueError, ["5 elements", "4"], lambda: dist.all_gather([torch.ones(5)] * world, ones))
    refuses(spillway.torch.SpillwayError, [f"rank {rank} of {world}", "itself"],
            lambda: dist.group.WORLD.send([ones], rank, 0))


SCENARIOS = [all_reduce_of_every_type_and_reduction, averages_of_integers_drop_fractions,
             reductions_of_integers_wrap_around_and_meet_bit_by_bit_as_gloos_do, products_of_floats_are_those_of_gloo,
             bools_stay_bools, sparse_tensors_are_added_up_as_gloos_are, sparse_all_reduces_keep_their_turn,
             sparse_tensors_that_differ_are_named, lazily_conjugated_and_negated_tensors_are_resolved,
             tags_are_received_in_any_order, receives_from_any_rank, barriers_that_are_watched,
             all_reduce_of_random_floats_is_close_to_gloo_and_the_same_everywhere, broadcasts, all_gathers,
             reduce_scatters, gathers_and_scatters, reduces, all_to_alls, sends_and_receives, objects,
             tensors_that_are_not_contiguous, empty_tensors_and_scalars, parameters_that_need_gradients,
             asynchronous_operations, futures, a_future_does_not_wait_for_an_earlier_one, several_at_once,
             functional_collectives_where_torch_has_them, ranks_that_meet_twice_through_one_store,
             calls_on_the_group_itself, sub_groups,
             what_it_does_not_have_is_refused]
