#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The limits of an attacker who captures every packet of a job with a secret and sends anything (SECURITY.md,
"Attackers and their limits").

    tests/security/listener_test.py LIBRARY

Hosts are network namespaces, which need root; skips without it: exit code 77.
"""
import json
import os
import pathlib
import signal
import socket
import sys
import tempfile
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
RUNTIME = HERE.parent / "runtime"
sys.path[:0] = [str(HERE.parent), str(RUNTIME)]

from failures_test import PEER_FAILED, Crashed, Trial, check_survivor, outcome_of
from forged_packets import NO_PORT, icmp_message
from harness.namespaces import NetworkNamespaces, contain, in_namespace
from harness.patience import Limit, wait_until
from harness.processes import RankProcesses, python
from hostile_host import Wiretap, ip_and_udp

SKIPPED = 77
WORLD = 3
LISTENER = WORLD
QUOTED_BYTES = 528  # of a datagram in an ICMP message
REFUSALS = 3000
FEWEST_REFUSALS = 100
STILL_REDUCING = "still reducing"
SUMS_SENT_BACK = 600
SUMS_REPEATED = 200

# Offsets in a packet (docs/wire.md).
SOURCE, DESTINATION, KIND = 4, 6, 32
SUM = 0x48
RESULT = 4


def is_sum(datagram):
    return datagram.payload[0] == SUM


class Listener(unittest.TestCase):
    library = None

    def setUp(self):
        self.network = self.enterContext(NetworkNamespaces(WORLD + 1, splits_bursts=True))
        self.tap = self.enterContext(Wiretap(self.network, range(WORLD)))
        self.addresses = [self.network.address(rank) for rank in range(WORLD)]
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.secret = pathlib.Path(folder, "secret")
        self.secret.touch(mode=0o600)
        self.secret.write_text("a secret of this job, drawn for it", encoding="utf-8")

    def start(self, code, **variables):
        command = python(RUNTIME / "reducing_rank.py", self.library, 1, code)
        ranks = RankProcesses(WORLD, lambda rank: command, f"{self.addresses[0]}:5000", self.network.enter,
                              variables={"SPILLWAY_SECRET_FILE": self.secret, **variables})
        self.enterContext(ranks)
        ranks.expect_line("ready")
        return ranks

    def check_still_reducing(self, ranks):
        ranks.send_signal(signal.SIGUSR1)
        ranks.expect_line(STILL_REDUCING)

    @staticmethod
    def has_ended(ranks):
        return any(process.poll() is not None for process in ranks.processes)

    def hear_sums(self, count, is_wanted=lambda one: True):
        for one in self.tap.hear():
            if is_sum(one) and is_wanted(one):
                yield one
                count -= 1
                if count == 0:
                    return

    def repeat_while_starved(self, attempt):
        """Repeats a failed attempt if its ranks were starved: a rank without a processor is blamed rightly."""
        limit = Limit()
        while True:
            trial = Trial()
            try:
                with trial.stalls:
                    return attempt(trial)
            except Crashed:
                raise
            except AssertionError:
                if not trial.was_starved() or limit.left() == 0:
                    raise

    def test_refusals_of_what_was_just_sent_end_no_rank_that_answers(self):
        """Refusals alone end no rank, and all sums stay right.

        A rank has one second to answer a refusal, whatever its peers' timeout is. refused_datagram_test.cc (transport)
        holds that rule to virtual time. Here a rank that gets no processor for so long is named rightly. Then fewer
        refusals are tried, which take less time."""
        limit, refusals = Limit(), REFUSALS
        while True:
            trial = Trial()
            with trial.stalls:
                said = self.refuse_what_is_sent(refusals, trial)
            if said == [STILL_REDUCING] * WORLD:
                return
            self.check_a_rank_was_named_dead(said)
            self.assertTrue(trial.was_starved() and limit.left() > 0, f"after {refusals} refusals: {said}")
            refusals = max(refusals // 2, FEWEST_REFUSALS)

    def check_a_rank_was_named_dead(self, said):
        """No other end is explained by a busy machine."""
        failures = [json.loads(line) for line in said if line != STILL_REDUCING]
        self.assertEqual({failure["status"] for failure in failures}, {PEER_FAILED}, said)
        self.assertTrue(any("is dead" in failure["message"] for failure in failures), said)

    def refuse_what_is_sent(self, refusals, trial):
        """Returns the next line of each rank: that it still reduces, or why it ended."""
        ranks = self.start("exact")
        trial.stalls.watch(ranks.processes)
        raw = self.enterContext(in_namespace(
            self.network.names[LISTENER],
            lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)))
        forged, is_over = [], threading.Event()

        def refuse():
            for one in self.tap.hear():
                raw.sendto(icmp_message(NO_PORT, ip_and_udp(one)[:QUOTED_BYTES]), (one.source, 0))
                forged.append(one.source)
                if is_over.is_set():
                    return

        refusing = threading.Thread(target=refuse, daemon=True)
        refusing.start()
        try:
            wait_until(lambda: len(forged) >= refusals or self.has_ended(ranks), "packets to refuse")
            ranks.send_signal(signal.SIGUSR1)
            said = [process.line() for process in ranks.processes]
            is_over.set()
            if said == [STILL_REDUCING] * WORLD:
                refusing.join()  # it ends with the next packet that it hears
            return said
        finally:
            is_over.set()
            ranks.__exit__()

    def test_sums_that_are_sent_back_or_aside_end_no_rank(self):
        """Each to every rank, in the name of every other; results reach their owners during the sums and later."""
        ranks = self.start("levels")
        heard = list(self.hear_sums(SUMS_SENT_BACK))
        self.assertTrue(any(one.payload[KIND] == RESULT for one in heard))
        ports = {one.destination: one.destination_port for one in heard}
        self.assertEqual(len(ports), WORLD)
        for one in heard:
            for source in range(WORLD):
                for destination in {0, 1, 2} - {source}:
                    address = self.addresses[destination]
                    self.tap.send(one._replace(source=self.addresses[source], destination=address,
                                               destination_port=ports[address])
                                  .changed(SOURCE, "<H", source).changed(DESTINATION, "<H", destination))
            self.assertFalse(self.has_ended(ranks))
        self.check_still_reducing(ranks)

    def test_a_rank_that_stopped_is_named_in_time_whatever_is_repeated(self):
        self.repeat_while_starved(self.stop_a_rank)

    def stop_a_rank(self, trial):
        victim = 1
        ranks = self.start("levels", SPILLWAY_PEER_TIMEOUT=trial.peer_timeout())
        trial.stalls.watch(ranks.processes)
        heard = list(self.hear_sums(SUMS_REPEATED, lambda one: one.source == self.addresses[victim]))
        struck_at = time.monotonic()
        ranks[victim].send_signal(signal.SIGSTOP)
        is_over = threading.Event()

        def repeat():
            while not is_over.is_set():
                for one in heard:
                    self.tap.send(one)

        repeating = threading.Thread(target=repeat)
        repeating.start()
        try:
            for rank in {0, 1, 2} - {victim}:
                check_survivor(rank, victim, outcome_of(rank, ranks[rank]), struck_at, trial)
        finally:
            is_over.set()
            repeating.join()


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("network namespaces need root")
        sys.exit(SKIPPED)
    contain()
    Listener.library = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
