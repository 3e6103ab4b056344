# SPDX-License-Identifier: Apache-2.0
"""A malicious member with a vote: the next change admits it as a standby. From then on it votes as a member should,
in a thread of its own, until it is told to lie. The messages are those of lib/elastic/membership/message.h.
"""
import os
import queue
import select
import struct
import threading
from typing import NamedTuple, Tuple

from false_member import SPEECH, FalseMember, Speech, text

HELLO, LEAVE, ALIVE, SUSPECT, STRAGGLING, DONE = 0, 2, 3, 4, 5, 7
HALT, PARKED, ACCEPT, ACCEPTED, REFUSED, CHOSEN, VERDICT, FOLLOWING = 8, 10, 11, 12, 13, 14, 15, 18
LAST_ROUND = 2**32
JOB_DONE = "the job is done"
PRIME = 2**61 - 1
LOOKS_EVERY_S = 0.01


def ballot(round_number, index):
    return round_number << 16 | index


class Decision(NamedTuple):
    ends: bool
    epoch: int
    ranks: Tuple[int, ...]
    standbys: Tuple[int, ...]
    why: bytes
    step: int
    sources: Tuple[int, ...]
    handles: Tuple[bytes, ...]
    nonce: bytes

    @property
    def members(self):
        return self.ranks + self.standbys

    def bytes(self):
        return (bytes([self.ends]) + Speech.view(self.epoch, self.ranks, self.standbys) + text(self.why)
                + struct.pack(f"<QH{len(self.sources)}IH", self.step, len(self.sources), *self.sources,
                              len(self.handles))
                + b"".join(map(text, self.handles)) + self.nonce)

    @classmethod
    def read(cls, data):
        reader = Reader(data)
        ends, epoch = reader.get("<BI")
        ranks, standbys, why = reader.numbers("Q"), reader.numbers("Q"), reader.text()
        step, = reader.get("<Q")
        sources, count = reader.numbers("I"), reader.get("<H")[0]
        handles = tuple(reader.text() for _ in range(count))
        return cls(bool(ends), epoch, ranks, standbys, why, step, sources, handles, data[reader.at:reader.at + 16])

    def ended(self, why):
        """The end of the job in place of this decision."""
        return self._replace(ends=True, sources=(), handles=(), why=why.encode())

    def fingerprint(self, point):
        """That of lib/elastic/membership/fork_watch.cc."""
        data = bytes([VERDICT]) + self.bytes()
        value = len(data)
        for at in range(0, len(data), 4):
            value = (value * (point % PRIME) + int.from_bytes(data[at:at + 4], "big")) % PRIME
        return value


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def get(self, layout):
        fields = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return fields

    def numbers(self, kind):
        return self.get(f"<{self.get('<H')[0]}{kind}")

    def text(self):
        size, = self.get("<H")
        self.at += size
        return self.data[self.at - size:self.at]


class Parked(NamedTuple):
    step: int
    handle: bytes


class FalseVoter(FalseMember):
    """Leave its block to hang up. `decision` made the present view; None before it was admitted."""

    def __init__(self, ticket, version):
        super().__init__(ticket, version, name="false:2")
        self.id = self.identity.member
        self.decision = self.accepted = self.claimed = self.choose = self.trouble = None
        self.parked, self.lies, self.is_over = {}, queue.SimpleQueue(), threading.Event()
        self.thread = threading.Thread(target=self._run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()
        self.close()

    def lie(self, lie):
        """Calls lie(self) in the thread."""
        self.lies.put(lie)

    @property
    def is_admitted(self):
        return self.decision is not None

    @property
    def index(self):
        return self.decision.members.index(self.id)

    @property
    def others(self):
        return [member for member in self.decision.members if member != self.id]

    # ---- For lies ----

    def tell(self, member, kind, body=b""):
        try:
            self.streams[member].say(SPEECH, bytes([kind]) + body)
        except (KeyError, OSError):  # it has ended
            pass

    def tell_all(self, kind, body=b""):
        for member in list(self.streams):
            self.tell(member, kind, body)

    def follow(self, decision, member, offset=0):
        """Sends the fingerprint of a decision, or with an offset a wrong one."""
        point = int.from_bytes(os.urandom(8), "little")
        value = (decision.fingerprint(point) + offset) % PRIME
        self.tell(member, FOLLOWING, struct.pack("<IQQ", decision.epoch, point, value))

    def next(self, **fields):
        """A decision that could follow the present one: as it is, with these fields."""
        return self.decision._replace(epoch=self.decision.epoch + 1, **fields)

    def drive(self, choose):
        """Halts all. Once they have parked, makes each accept what choose(member) returns, and says that this was
        chosen."""
        self.choose, self.parked, self.driven = choose, {}, ballot(9, self.index)
        self.tell_all(HALT, struct.pack("<IQBQ", self.decision.epoch, self.driven, 0, 0) + text("a lie"))

    def hang_up(self):
        self.close()
        self.streams.clear()

    # ---- As a member should ----

    def _run(self):
        try:
            self.tell_all(HELLO, struct.pack("<IBB", 0, 1, 0) + text(b"\0" * 40))
            while not self.is_over.is_set():
                self._serve()
        except Exception as error:  # for the test, which sees it at the end
            self.trouble = error

    def _serve(self):
        by_socket = {stream.socket: member for member, stream in self.streams.items()}
        for ready in select.select(list(by_socket), [], [], LOOKS_EVERY_S)[0]:
            member = by_socket[ready]
            try:
                kind, body = self.streams[member].hear()
            except OSError:
                self.streams.pop(member).close()
                continue
            if kind == SPEECH:
                self._hear(member, body[0], body[1:])
        if not self.lies.empty():
            self.lies.get()(self)

    def _hear(self, member, kind, body):
        if kind == ALIVE:  # members do not answer this answer
            self.tell(member, ALIVE, struct.pack("<IQqQB", self.decision.epoch if self.is_admitted else 0, 0, 0, 0, 0))
        elif kind == HALT:
            self._park(member, body[:12])
        elif kind == ACCEPT:
            self.accepted = Decision.read(body[12:])
            self.tell(member, ACCEPTED, body[:12])
        elif kind == CHOSEN and self.accepted is not None:
            self._adopt(self.accepted)
        elif kind == VERDICT:
            self._adopt(Decision.read(body))
        elif kind == PARKED and self.choose is not None:
            self._gather(member, body)

    def _park(self, driver, which):
        """`which`: epoch and ballot. `claimed`, if a lie has set it: the ballot and decision accepted before."""
        position = struct.pack("<BQBH", 0, 0, 0, len(self.streams) + 1) + text(b"\0" * 40)
        accepted = struct.pack("<Q", 0)
        if self.claimed is not None:
            accepted = struct.pack("<Q", self.claimed[0]) + self.claimed[1].bytes()
        self.tell(driver, PARKED, which + position + accepted)

    def _adopt(self, decision):
        if decision.ends or self.id not in decision.members or (
                self.is_admitted and decision.epoch <= self.decision.epoch):
            return
        self.decision, self.accepted = decision, None
        for member in self.others:
            self.follow(decision, member)

    def _gather(self, member, body):
        reader = Reader(body)
        _, which = reader.get("<IQ")
        _, step, _, _ = reader.get("<BQBH")
        if which != self.driven:
            return
        self.parked[member] = Parked(step, reader.text())
        if set(self.parked) < set(self.others):
            return
        at, choose = struct.pack("<IQ", self.decision.epoch, self.driven), self.choose
        self.choose = None
        for each in self.others:
            chosen = choose(each)
            self.tell(each, ACCEPT, at + chosen.bytes())
            self.tell(each, CHOSEN, at)
            if each == self.others[-1]:
                self._adopt(chosen)
