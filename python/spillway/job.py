# SPDX-License-Identifier: Apache-2.0
"""A process's place in a job whose members change, over the C interface; independent of torch. Training scripts use
spillway.torch.elastic.

    job = spillway.Job.found(comm, standbys=1)     # all ranks together
    comm = job.communicator()                      # of the present epoch
    if job.step(step) or an operation failed:      # a member is gone
        change = job.park(step)                    # training stands still until the members agree

Threads: one at a time, except for ask() and is_interrupted(). Jobs that are open when the interpreter exits are
closed.
"""
import atexit
import ctypes
import dataclasses
import json
import weakref
from typing import Any, Dict, Optional, Sequence, Tuple

from . import abi
from .communicator import Communicator
from .errors import SpillwayError, Status

MAX_TICKET = 256
MAX_ANSWER = 4 << 20


@dataclasses.dataclass(frozen=True)
class Change:
    """A change that the members agreed on. `rank` is None for a standby. `is_done`: the job ends normally, because
    all steps are done or it was asked to end without a reason. Times are wall-clock ns: when this process was told to
    stop, stood still, and learned the decision."""

    ends: bool
    epoch: int
    rank: Optional[int]
    world: int
    step: int
    sources: Tuple[int, ...]
    why: str
    is_done: bool
    interrupted_ns: int
    parked_ns: int
    decided_ns: int


class Job:
    """Made by found() or join(). Keywords are fields of spillway_job_config."""

    def __init__(self, library: abi.Library, handle: ctypes.c_void_p) -> None:
        self._library, self._handle = library, handle
        _open.add(self)

    @classmethod
    def found(cls, communicator: Communicator, **fields: Any) -> "Job":
        """Called at all ranks of the communicator."""
        library, handle = communicator.library, ctypes.c_void_p()
        config = cls._config(library, fields)
        library.check(library.lib.spillway_job_found(communicator.handle, ctypes.byref(config), ctypes.byref(handle)))
        return cls(library, handle)

    @classmethod
    def join(cls, ticket: str, *, library: Optional[abi.Library] = None, **fields: Any) -> "Job":
        """Joins a running job as a standby."""
        library, handle = library or abi.default_library(), ctypes.c_void_p()
        config = cls._config(library, fields)
        library.check(library.lib.spillway_job_join(ticket.encode(), ctypes.byref(config), ctypes.byref(handle)))
        return cls(library, handle)

    @staticmethod
    def _config(library: abi.Library, fields: Dict[str, Any]) -> abi.JobConfig:
        config = abi.JobConfig()
        library.lib.spillway_job_config_init_sized(ctypes.byref(config), abi.JobConfig.room.offset)
        abi.set_fields(config, "spillway_job_config", fields)
        return config

    @property
    def ticket(self) -> str:
        text = ctypes.create_string_buffer(MAX_TICKET)
        self._library.check(self._library.lib.spillway_job_ticket(self._handle, text, len(text)))
        return text.value.decode()

    def first_change(self) -> Optional[Change]:
        """A founder's first epoch; None for a process that joined later, which must park()."""
        raw = abi.JobChange(size=ctypes.sizeof(abi.JobChange))
        status = self._library.lib.spillway_job_first_change(self._handle, ctypes.byref(raw))
        if status == Status.UNAVAILABLE:
            return None
        self._library.check(status)
        return self._change(raw)

    def step(self, step: int, work_s: float = 0.0) -> bool:
        """Announces the next step, and how much of this rank's own time the last one took. True: the step must not
        begin; call park()."""
        must_stop = ctypes.c_int()
        self._library.check(self._library.lib.spillway_job_step(self._handle, step, int(work_s * 1e6),
                                                                ctypes.byref(must_stop)))
        return bool(must_stop.value)

    def is_interrupted(self) -> bool:
        return bool(self._library.lib.spillway_job_interrupted(self._handle))

    def park(self, step: int, *, has_state: bool = True, is_warm: bool = True,
             timeout_s: Optional[float] = None) -> Optional[Change]:
        """Waits for the next change. None if nothing was decided in time."""
        position = abi.JobPosition(size=ctypes.sizeof(abi.JobPosition), has_state=has_state, is_warm=is_warm, step=step)
        raw = abi.JobChange(size=ctypes.sizeof(abi.JobChange))
        left_ms = None if timeout_s is None else int(timeout_s * 1000)
        while True:
            part_ms = abi.WAIT_SLICE_MS if left_ms is None else min(left_ms, abi.WAIT_SLICE_MS)
            status = self._library.lib.spillway_job_park(self._handle, ctypes.byref(position), part_ms,
                                                         ctypes.byref(raw))
            if status != Status.IN_PROGRESS:
                self._library.check(status)
                return self._change(raw)
            if left_ms is not None:
                left_ms -= part_ms
                if left_ms <= 0:
                    return None

    def _change(self, raw: abi.JobChange) -> Change:
        ranks = (ctypes.c_uint32 * raw.sources)()
        self._library.check(self._library.lib.spillway_job_sources(self._handle, ranks, raw.sources))
        return Change(ends=bool(raw.ends), epoch=raw.epoch, rank=None if raw.rank < 0 else raw.rank, world=raw.world,
                      step=raw.step, sources=tuple(ranks), why=raw.why.decode(errors="replace"),
                      is_done=bool(raw.is_done), interrupted_ns=raw.interrupted_ns, parked_ns=raw.parked_ns,
                      decided_ns=raw.decided_ns)

    def communicator(self, channel: int = 0, ranks: Sequence[int] = ()) -> Communicator:
        """The communicator of the last change's epoch, once per channel. Without `ranks`: all of them."""
        chosen, handle = (ctypes.c_uint32 * len(ranks))(*ranks), ctypes.c_void_p()
        self._library.check(self._library.lib.spillway_job_comm(self._handle, channel, chosen, len(ranks),
                                                                ctypes.byref(handle)))
        return Communicator.adopt(self._library, handle)

    def finish(self) -> bool:
        """Reports that this rank has done all steps. True: so have all ranks. False: a rank is gone that had not;
        call park()."""
        is_done = ctypes.c_int()
        while True:
            status = self._library.lib.spillway_job_finish(self._handle, abi.WAIT_SLICE_MS, ctypes.byref(is_done))
            if status != Status.IN_PROGRESS:
                self._library.check(status)
                return bool(is_done.value)

    def leave(self) -> None:
        """Ends this process's part. The others are told, so they need not detect it."""
        self._library.check(self._library.lib.spillway_job_leave(self._handle))

    def ask(self, question: str, timeout_s: float = 10.0) -> str:
        """Asks "move RANK...", "remove RANK...", "end" or "end REASON", and returns one line. Raises if the job
        refuses."""
        text = ctypes.create_string_buffer(MAX_ANSWER)
        self._library.check(self._library.lib.spillway_job_ask(self._handle, question.encode(), int(timeout_s * 1000),
                                                               text, len(text)))
        answer = text.value.decode(errors="replace")
        if answer.startswith("refused: "):
            raise SpillwayError(Status.INVALID_ARGUMENT, answer[len("refused: "):])
        return answer

    def status(self) -> Dict[str, Any]:
        return dict(json.loads(self.ask("status")))

    def close(self) -> None:
        """May be called again."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        _open.discard(self)
        if handle:
            self._library.lib.spillway_job_free(handle)

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()


_open: "weakref.WeakSet[Job]" = weakref.WeakSet()


@atexit.register
def close_all() -> None:
    """Closes jobs before the interpreter exits, so that the others notice at once."""
    for job in list(_open):
        job.close()
