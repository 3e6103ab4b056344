#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of ctypes_test.py: each function is a scenario with its own communicator.

    tests/runtime/ctypes_rank.py LIBRARY MEETING...

Each scenario uses the next meeting place. After it, a rank writes one line of JSON: its name, and the error, if any.
"""
import ctypes
import json
import os
import sys
import threading
import traceback
import zlib

import spillway_ctypes as sw

C_TYPES = {sw.FLOAT32: ctypes.c_float, sw.FLOAT64: ctypes.c_double, sw.INT32: ctypes.c_int32,
           sw.INT64: ctypes.c_int64}


def every_type_and_reduction(library, comm):
    others = range(1, comm.world + 1)
    expected = {sw.SUM: sum(others), sw.AVERAGE: sum(others) / comm.world, sw.MIN: 1, sw.MAX: comm.world}
    for data_type, c_type in C_TYPES.items():
        for op, result in expected.items():
            send = (c_type * 5000)(*[comm.rank + 1] * 5000)
            receive = (c_type * 5000)()
            comm.run("all_reduce", send, receive, 5000, data_type, op)
            assert set(receive) == {result}, (data_type, op, set(receive))


def every_operation(library, comm):
    me, world = comm.rank, comm.world
    one, many = ctypes.c_int32 * 1, ctypes.c_int32 * world
    received = many()
    comm.run("all_gather", one(me), received, 1, sw.INT32)
    assert list(received) == list(range(world))
    comm.run("all_to_all", many(*[me * 10 + peer for peer in range(world)]), received, 1, sw.INT32)
    assert list(received) == [peer * 10 + me for peer in range(world)]
    part = one()
    comm.run("reduce_scatter", many(*range(world)), part, 1, sw.INT32, sw.SUM)
    assert part[0] == me * world
    comm.run("scatter", many(*range(world)) if me == 1 else None, part, 1, sw.INT32, 1)
    assert part[0] == me
    comm.run("gather", one(me + 5), received if me == 0 else None, 1, sw.INT32, 0)
    assert me != 0 or list(received) == [peer + 5 for peer in range(world)]
    comm.run("broadcast", one(77) if me == 1 else None, part, 1, sw.INT32, 1)
    assert part[0] == 77
    comm.run("reduce", one(me), part, 1, sw.INT32, sw.MAX, 0)
    assert me != 0 or part[0] == world - 1
    comm.run("barrier")


def send_and_receive(library, comm):
    count = 100_000
    ring_next, ring_before = (comm.rank + 1) % comm.world, (comm.rank - 1) % comm.world
    send = (ctypes.c_double * count)(*[comm.rank + 0.5] * count)
    receive = (ctypes.c_double * count)()
    request = comm.start("receive", receive, count, sw.FLOAT64, ring_before)
    comm.run("send", send, count, sw.FLOAT64, ring_next)
    assert request.wait()
    assert set(receive) == {ring_before + 0.5}


def a_tolerant_sum(library, comm):
    count = 50_000
    options = library.options()
    options.tolerant, options.loss_bound_ppm = 1, 5000
    values = [float(i % 7 - 3) for i in range(count)]
    buffer = (ctypes.c_float * count)(*values)
    request = comm.start("all_reduce", buffer, buffer, count, sw.FLOAT32, sw.SUM, options=options)
    assert request.wait()
    error = sum((got - comm.world * value) ** 2 for got, value in zip(buffer, values))
    assert error < 0.1 * sum((comm.world * value) ** 2 for value in values), error
    assert request.report().contributors == comm.world and request.report().empty_shards == 0
    assert len(request.report().peers) == comm.world and not any(peer.late for peer in request.report().peers)


def sums_without_decoding(library, comm):
    count = 30_000
    values = [float(i % 7 - 3) for i in range(count)]
    for code, precision, algorithm in (("levels", 4, "switch"), ("blocks", 16, "switch"), ("entropy", 8, "ring"),
                                      ("sketch", 8, "direct")):
        options = library.options()
        options.tolerant, options.loss_bound_ppm, options.precision = 1, 0, precision
        options.codec, options.algorithm = sw.CODECS.index(code), sw.ALGORITHMS.index(algorithm)
        buffer = (ctypes.c_float * count)(*values)
        request = comm.start("all_reduce", buffer, buffer, count, sw.FLOAT32, sw.SUM, options=options)
        assert request.wait()
        error = sum((got - comm.world * value) ** 2 for got, value in zip(buffer, values))
        assert error < 0.05 * sum((comm.world * value) ** 2 for value in values), (code, error)
        report = request.report()
        assert (report.codec, report.algorithm, report.contributors) == (code, algorithm, comm.world), report
        assert (report.entropy_bytes > 0) == (code in ("entropy", "sketch")), report
        assert report.sketch_predicted == (count if code == "sketch" else 0), report
        mine, everybody = ctypes.c_uint32 * 1, (ctypes.c_int32 * comm.world)()
        comm.run("all_gather", mine(zlib.crc32(bytes(buffer))), everybody, 1, sw.INT32)
        assert len(set(everybody)) == 1, "ranks end with other bytes"


def many_in_flight(library, comm):
    buffers = [(ctypes.c_float * 2000)(*[1.0] * 2000) for _ in range(128)]
    requests = [comm.start("all_reduce", buffer, buffer, 2000, sw.FLOAT32, sw.SUM) for buffer in buffers]
    for buffer, request in zip(buffers, requests):
        assert request.wait()
        assert len(request.report().peers) == comm.world
        assert set(buffer) == {float(comm.world)}


def several_communicators(library, comm):
    """Each carries the id of the next; all are used at once, each from its own thread."""
    comms = [comm]
    for number in range(3):
        made = library.unique_id() if comm.rank == 0 else sw.UniqueId()
        comms[-1].run("broadcast", ctypes.byref(made), ctypes.byref(made), 32, sw.INT32, 0)
        comms.append(sw.Communicator(library, made, rank=comm.rank, world=comm.world,
                                     name=f"extra {number}".encode()))
    sums = [None] * len(comms)

    def reduce(index):
        buffer = (ctypes.c_int64 * 10_000)(*[index] * 10_000)
        for _ in range(20):
            comms[index].run("all_reduce", buffer, buffer, 10_000, sw.INT64, sw.MAX)
        sums[index] = set(buffer)

    threads = [threading.Thread(target=reduce, args=(index,)) for index in range(len(comms))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [{index} for index in range(len(comms))], sums
    for extra in comms[1:]:
        extra.close()


def callbacks(library, comm):
    told = []
    callback = sw.Callback(lambda context, status, message: told.append((context, status, message)))
    options = library.options()
    options.callback = callback
    for context in range(1, 21):
        options.context = context
        buffer = (ctypes.c_float * 10)()
        comm.run("all_reduce", buffer, buffer, 10, sw.FLOAT32, sw.SUM, options=options)
        assert told[-1] == (context, sw.OK, b""), told
    assert len(told) == 20


def options_of_an_older_caller(library, comm):
    options = library.options()
    options.size = sw.OperationOptions.tolerant.offset
    options.tolerant, options.precision = 1, 999  # beyond `size`: ignored
    buffer = (ctypes.c_int32 * 100)(*[1] * 100)
    comm.run("all_reduce", buffer, buffer, 100, sw.INT32, sw.SUM, options=options)
    assert set(buffer) == {comm.world}


def a_wait_that_is_too_short(library, comm):
    """Rank 0 waits for a barrier that the others join when it tells them to."""
    word = (ctypes.c_int32 * 1)()
    if comm.rank == 0:
        request = comm.start("barrier")
        assert request.wait(30) is False and not request.is_done()
        for peer in range(1, comm.world):
            comm.run("send", word, 1, sw.INT32, peer)
        assert request.wait()
    else:
        comm.run("receive", word, 1, sw.INT32, 0)
        comm.run("barrier")


def a_forked_child(library, comm):
    """It is refused its parent's communicator, may free it, and may make its own."""
    child = os.fork()
    if child == 0:
        refused = False
        try:
            comm.run("barrier")
        except sw.SpillwayError as error:
            refused = error.status == sw.INVALID_ARGUMENT and "fork" in str(error)
        comm.close()  # its parent's stays usable
        sw.Communicator(library, library.unique_id(), rank=0, world=1).close()
        os._exit(0 if refused else 1)
    assert os.waitpid(child, 0)[1] == 0
    comm.run("barrier")


def an_abort(library, comm):
    buffer = (ctypes.c_float * 1000)()
    request = comm.start("barrier")
    if comm.rank == 1:
        comm.abort("the loss is not a number")
    try:
        request.wait()
        comm.run("all_reduce", buffer, buffer, 1000, sw.FLOAT32, sw.SUM)
        raise AssertionError("an aborted communicator works")
    except sw.SpillwayError as error:
        expected = (sw.ABORTED, "not a number") if comm.rank == 1 else (sw.PEER_FAILED, "rank 1 aborted")
        assert error.status == expected[0] and expected[1] in str(error), (error.status, error)
    try:
        comm.check_health()
        raise AssertionError("an aborted communicator is healthy")
    except sw.SpillwayError as error:
        assert error.status == expected[0]


def a_rank_that_calls_something_else(library, comm):
    try:
        if comm.rank == 0:
            comm.run("barrier")
        else:
            buffer = (ctypes.c_float * 1000)()
            comm.run("all_reduce", buffer, buffer, 1000, sw.FLOAT32, sw.SUM)
        raise AssertionError("different operations ended well")
    except sw.SpillwayError as error:
        assert error.status == sw.MISMATCH and "rank" in str(error), (error.status, error)


SCENARIOS = [every_type_and_reduction, every_operation, send_and_receive, a_tolerant_sum,
             sums_without_decoding, many_in_flight,
             several_communicators, callbacks, options_of_an_older_caller, a_wait_that_is_too_short,
             a_forked_child, an_abort, a_rank_that_calls_something_else]


def play(library, scenario, meeting):
    """The error, if any."""
    os.environ["SPILLWAY_COMM_ID"] = meeting
    try:
        comm = sw.Communicator(library)
        try:
            scenario(library, comm)
        finally:
            comm.close()
    except Exception:
        return traceback.format_exc()
    return ""


def main():
    library = sw.Library(sys.argv[1])
    for scenario, meeting in zip(SCENARIOS, sys.argv[2:], strict=True):
        print(json.dumps({"scenario": scenario.__name__, "fault": play(library, scenario, meeting)}), flush=True)


if __name__ == "__main__":
    main()
