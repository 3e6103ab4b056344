# SPDX-License-Identifier: Apache-2.0
"""A real rank's connection to its stage (spillway emulate stage): the rank's calls go there, and their end times come
back. emulate/stage/stage_protocol.h defines the protocol. Independent of torch.

Times are of the monotonic clock, in nanoseconds. Every wait for an answer gets one, or an error: the stage limits all
waits, and if it is gone, all waiting threads get an error. Threads: any may call; one of the link's own reads.
"""
import atexit
import ctypes
import json
import os
import socket
import threading
import time
from typing import Any, Dict, List, Optional, Sequence

from ..errors import SpillwayError, Status

PR_SET_TIMERSLACK = 29
KEPT_LATENESS = 4096
SHORTEST_WAIT_NS = 20_000  # shorter waits are not reported
WAITERS = "spillway-wait"  # name prefix of threads that wait for others (operation.py)


class Answer:
    """An operation's end time, once the stage knows it."""

    def __init__(self) -> None:
        self._has_come = threading.Event()
        self._end_ns = 0
        self._error: Optional[SpillwayError] = None

    def set(self, end_ns: int) -> None:
        self._end_ns = end_ns
        self._has_come.set()

    def fail(self, error: SpillwayError) -> None:
        self._error = error
        self._has_come.set()

    def is_there(self) -> bool:
        return self._has_come.is_set()

    @property
    def error(self) -> Optional[SpillwayError]:
        return self._error

    def wait(self, timeout_s: Optional[float]) -> Optional[int]:
        """The end time; None if the time was up. Raises the stage's refusal."""
        if not self._has_come.wait(timeout_s):
            return None
        if self._error is not None:
            raise SpillwayError(self._error.status, str(self._error))
        return self._end_ns


def status_named(name: str) -> Status:
    return Status.__members__.get(name.upper().replace("-", "_"), Status.INTERNAL)


class PreciseSleep:
    """Sleeps until a time of the clock, without the kernel's timer slack, and records how late it woke up."""

    def __init__(self) -> None:
        self._thread = threading.local()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.late_ns: List[int] = []
        self.count = 0

    def until(self, end_ns: int) -> None:
        left_ns = end_ns - time.monotonic_ns()
        if left_ns <= 0:
            return
        if not hasattr(self._thread, "is_precise"):
            self._libc.prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
            self._thread.is_precise = True
        while left_ns > 0:
            time.sleep(left_ns / 1e9)
            left_ns = end_ns - time.monotonic_ns()
        self._note(-left_ns)

    def _note(self, late_ns: int) -> None:
        self.count += 1
        if len(self.late_ns) < KEPT_LATENESS:
            self.late_ns.append(late_ns)
        else:
            self.late_ns[self.count % KEPT_LATENESS] = late_ns

    def summary(self) -> Dict[str, float]:
        late = sorted(self.late_ns) or [0]
        return {"waits": self.count, "late_p50_us": late[len(late) // 2] / 1e3,
                "late_p99_us": late[len(late) * 99 // 100] / 1e3, "late_us": late[-1] / 1e3}


class StageLink:
    def __init__(self, path: str, rank: int) -> None:
        self.rank, self._process = rank, os.getpid()
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(path)
        except OSError as error:
            raise SpillwayError(Status.UNAVAILABLE, f"rank {rank} cannot reach the stage at {path}: {error}. Is "
                                "`spillway emulate stage` running?") from error
        self._lines = self._socket.makefile("r", encoding="utf-8")
        self._lock = threading.Lock()
        self._answers: Dict[int, Answer] = {}
        self._tickets = self._groups = 0
        self._waited: List[int] = []
        self._lost: Optional[SpillwayError] = None
        self.sleep = PreciseSleep()
        self.reads = 0  # places where the script read values of virtual ranks
        self._say({"enter": rank})
        told = json.loads(self._lines.readline() or "{}")
        if "world" not in told:
            raise SpillwayError(Status.INVALID_ARGUMENT,
                                f"rank {rank} cannot enter the stage at {path}: {told.get('error', 'it hung up')}")
        self.world: int = told["world"]
        self.real: List[int] = told["real"]
        self.is_strict: bool = told["strict"]
        self._wants_waits: bool = told["waits"]
        self.memory_bytes: int = told["memory"]
        threading.Thread(target=self._read, name="spillway-stage", daemon=True).start()
        atexit.register(self.leave)

    # ---- Calls ----

    def group(self, name: str, ranks: Sequence[int]) -> int:
        """Returns a number for the group; `ranks` are ranks of the job, ascending."""
        with self._lock:
            number, self._groups = self._groups, self._groups + 1
            is_all = len(ranks) == self.world
            self._say({"group": number, "name": name, "ranks": [] if is_all else list(ranks)})
        return number

    def call(self, kind: str, group: int, size: int, root: int, *, uneven: bool = False,
             patience_ms: int = 0) -> Answer:
        more = {"uneven": True} if uneven else {}
        return self._ask({"call": kind, "group": group, "bytes": size, "root": root, "patience_ms": patience_ms,
                          **more})

    def message(self, verb: str, peer: int, group: int, size: int, tag: int) -> Answer:
        """`verb`: send or receive; `peer`: a rank of the job."""
        return self._ask({verb: peer, "group": group, "bytes": size, "tag": tag})

    def note_wait(self, began_ns: int, ended_ns: int) -> None:
        """The calling thread was blocked; threads that only wait for others do not count."""
        if (self._wants_waits and ended_ns - began_ns >= SHORTEST_WAIT_NS
                and not threading.current_thread().name.startswith(WAITERS)):
            with self._lock:
                self._waited += [began_ns, ended_ns]

    def leave(self) -> None:
        if os.getpid() != self._process:
            return  # the end of a forked child is not the rank's
        with self._lock:
            if self._lost is None:
                self._say({"leave": {**self.sleep.summary(), "reads": self.reads}})
                self._lost = SpillwayError(Status.ABORTED, f"rank {self.rank} has left the stage")

    # ---- Lines ----

    def _ask(self, said: Dict[str, Any]) -> Answer:
        answer = Answer()
        with self._lock:
            if self._lost is not None:
                answer.fail(self._lost)
                return answer
            ticket, self._tickets = self._tickets, self._tickets + 1
            self._answers[ticket] = answer
            if self._waited:
                self._say({"waited": self._waited})
                self._waited = []
            self._say({**said, "ticket": ticket, "at": time.monotonic_ns()})
        return answer

    def _say(self, said: Dict[str, Any]) -> None:
        try:
            self._socket.sendall(json.dumps(said).encode() + b"\n")
        except OSError:
            pass  # the reader notices, and fails all waits

    def _read(self) -> None:
        why = "the stage is gone"
        try:
            for line in self._lines:
                said = json.loads(line)
                if "ticket" not in said:
                    why = said.get("error", why)
                    break
                self._settle(said)
        except (OSError, ValueError) as error:
            why = f"the stage is gone: {error}"
        with self._lock:
            self._lost = self._lost or SpillwayError(Status.ABORTED, f"rank {self.rank}: {why}")
            waiting, self._answers = list(self._answers.values()), {}
        for answer in waiting:
            answer.fail(self._lost)

    def _settle(self, said: Dict[str, Any]) -> None:
        with self._lock:
            answer = self._answers.pop(said["ticket"])
        if "end" in said:
            answer.set(said["end"])
        else:
            answer.fail(SpillwayError(status_named(said.get("code", "")), said.get("error", "refused")))
