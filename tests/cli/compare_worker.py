#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A command for `spillway lab compare` that does not train: ranks send rank 0 some bytes over TCP, and rank 0 writes
the log of a training run that was twice as fast over Spillway.

    tests/cli/compare_worker.py BACKEND TRANSPORT LOG [STEPS]
"""
import json
import os
import socket
import sys
import time

STEP_BYTES = 100_000


def receive(peer, size):
    while size > 0:
        part = peer.recv(min(size, 1 << 16))
        if not part:
            raise ConnectionError("a peer left")
        size -= len(part)


def connected(address):
    """Connects as soon as rank 0 listens; the lab ends this rank if rank 0 fails."""
    while True:
        try:
            return socket.create_connection(address)
        except OSError:
            time.sleep(0.02)


def tell(told, peer):
    """Prints this rank's variables, and the congestion control of its connection."""
    tcp = peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
    print(json.dumps({**told, "tcp": tcp}), flush=True)


def serve(address, peers, told, log, steps):
    listener = socket.create_server(address)
    others = [listener.accept()[0] for _ in range(peers)]
    tell(told, others[0])
    scale = 1.0 if told["transport"] == "tcp" else 0.5
    for step in range(1, steps + 1):
        for peer in others:
            receive(peer, STEP_BYTES)
        seconds = scale * 0.01 * step
        events = [{"event": "step", "step": step, "seconds": seconds, "step_ms": scale * step, "loss": 1 / step}]
        if step % 5 == 0:
            events.append({"event": "evaluation", "step": step, "seconds": seconds, "accuracy": 0.9 * step / steps})
        log.writelines(json.dumps(event) + "\n" for event in events)
        log.flush()
    log.write("this is no JSON\n" + json.dumps({"event": "end"}) + "\n")
    for peer in others:
        peer.sendall(b"x")


def main():
    backend, transport, path = sys.argv[1:4]
    steps = int(sys.argv[4]) if len(sys.argv) > 4 else 20
    told = {name: os.environ.get(name) for name in
            ("SPILLWAY_CODEC", "SPILLWAY_BITS", "SPILLWAY_CARRIER", "SPILLWAY_LAB_HOOK", "PYTHONPATH",
             "SPILLWAY_LIBRARY")}
    told |= {"backend": backend, "transport": transport}
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if os.environ["RANK"] == "0":
        with open(path, "w") as log:
            serve(address, int(os.environ["WORLD_SIZE"]) - 1, told, log, steps)
    else:
        peer = connected(address)
        tell(told, peer)
        for _ in range(steps):
            peer.sendall(bytes(STEP_BYTES))
        peer.recv(1)


if __name__ == "__main__":
    main()
