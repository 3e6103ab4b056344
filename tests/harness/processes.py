# SPDX-License-Identifier: Apache-2.0
"""Tests start all processes through this module: single programs, and ranks of a job with a launcher's environment.
Nothing outlives its block, or the test that it is given to.
"""
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading

from harness.patience import HANGS_S, Limit

# Unless a rank's death is the subject, a busy machine must not look like one.
STEADY = {"SPILLWAY_PEER_TIMEOUT": "120"}


def free_port():
    """A port without a listener. Under ctest each test has its own loopback (contained.sh), so it stays free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def python(script, *arguments):
    """The command line that runs a script with this Python."""
    return [sys.executable, str(script), *map(str, arguments)]


def environment_with(variables=None, base=None):
    """This process's variables, or `base`, over STEADY, and `variables` over both; None unsets one."""
    merged = {**STEADY, **(os.environ if base is None else base), **(variables or {})}
    return {name: str(value) for name, value in merged.items() if value is not None}


def run(command, quiet_seconds=HANGS_S, **options):
    """Runs a program to its end, with its output as text. A hung program fails the test, and its output is shown.
    Options are those of subprocess.run."""
    given, check = options.pop("input", None), options.pop("check", False)
    if not options.pop("capture_output", True):
        options = {"stdout": None, "stderr": None, **options}
    if given is not None:
        options["stdin"] = subprocess.PIPE
    with Started(command, **options) as program:
        output, errors = program.finish(quiet_seconds, given)
        done = subprocess.CompletedProcess(program.args, program.returncode, output, errors)
    if check:
        done.check_returncode()
    return done


class Started(subprocess.Popen):
    """A running program, with its output as text. It is killed when its block is left or its test ends. With
    start_new_session=True, as for a launcher, the processes that it has started are killed with it.
    """

    def __init__(self, command, test=None, **options):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self._leads_group = options.get("start_new_session", False)
        super().__init__([str(word) for word in command], **{**pipes, **options})
        if test is not None:
            test.addCleanup(self.end)

    def __exit__(self, *_):
        self.end()

    def kill(self):
        if self._leads_group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        else:
            super().kill()

    def end(self):
        if self.poll() is None or self._leads_group:
            self.kill()
        if self.stdin and not self.stdin.closed:
            try:
                self.stdin.close()
            except BrokenPipeError:
                pass
        for pipe in (self.stdout, self.stderr):
            if pipe and not pipe.closed:
                pipe.close()
        self.wait()

    def finish(self, quiet_seconds=HANGS_S, given=None):
        """Its output on both pipes, once it has ended by itself; a hung program fails the test."""
        limit = Limit(quiet_seconds)
        while True:
            try:
                return self.communicate(given, timeout=limit.left())
            except subprocess.TimeoutExpired as late:
                if limit.left() == 0:
                    raise AssertionError(f"{' '.join(self.args)} hangs: {late.stdout!r} {late.stderr!r}") from None

    def wait_for_end(self, quiet_seconds=HANGS_S):
        """Its exit code. For a program whose pipes are read elsewhere or not at all."""
        limit = Limit(quiet_seconds)
        while True:
            try:
                return self.wait(timeout=limit.left())
            except subprocess.TimeoutExpired:
                if limit.left() == 0:
                    raise AssertionError(f"{self.args[0]} hangs") from None

    def line(self, quiet_seconds=HANGS_S, pipe=None):
        """The next line of its output; a program that ends or hangs instead fails the test."""
        limit, came = Limit(quiet_seconds), threading.Event()

        def kill_when_over():
            while not came.wait(limit.left()):
                if limit.left() == 0:
                    self.kill()
                    return

        watchdog = threading.Thread(target=kill_when_over, daemon=True)
        watchdog.start()
        line = (pipe or self.stdout).readline()
        came.set()
        watchdog.join()
        if not line:
            state = "hangs" if limit.left() == 0 else "ended"
            raise AssertionError(f"{' '.join(self.args)} {state} instead of printing a line: {self.communicate()}")
        return line.removesuffix("\n")

    def expect_line(self, line, quiet_seconds=HANGS_S):
        said = self.line(quiet_seconds)
        if said != line:
            self.kill()
            raise AssertionError(f"{' '.join(self.args)} printed {said!r}, not {line!r}: {self.communicate()}")

    def tell(self, line=""):
        """Writes a line to its standard input."""
        self.stdin.write(line + "\n")
        self.stdin.flush()


def rank_environment(rank, world, meeting, one_machine, variables=None):
    """The variables of Spillway's own launcher over this process's, and `variables` over both; None unsets one."""
    launched = {"SPILLWAY_RANK": rank, "SPILLWAY_WORLD_SIZE": world, "SPILLWAY_COMM_ID": meeting}
    if one_machine:
        launched |= {"SPILLWAY_LOCAL_RANK": rank, "SPILLWAY_LOCAL_WORLD_SIZE": world}
    return environment_with({**launched, **(variables or {})})


class RankProcesses:
    """Runs `command(rank)` for every rank. Leaving the block kills all that still run.

    Without a meeting place all ranks are on this machine. `variables` are set over the environment; None unsets one.
    With starts_all=False, start() starts ranks one by one.
    """

    def __init__(self, world, command, meeting=None, prefix=lambda rank: [], stdin=None, variables=None,
                 starts_all=True):
        self.world, self.command, self.prefix, self.stdin = world, command, prefix, stdin
        self.one_machine, self.meeting = meeting is None, meeting or f"127.0.0.1:{free_port()}"
        self.variables = variables
        self.by_rank = {}
        if starts_all:
            self.start(*range(world))

    def start(self, *ranks):
        for rank in ranks:
            self.by_rank[rank] = Started(
                self.prefix(rank) + self.command(rank), stdin=self.stdin,
                env=rank_environment(rank, self.world, self.meeting, self.one_machine, self.variables))

    @property
    def processes(self):
        return list(self.by_rank.values())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.end()

    def __getitem__(self, rank):
        return self.by_rank[rank]

    def expect_line(self, line, quiet_seconds=HANGS_S):
        """Expects this as the next line of each rank."""
        for process in self.processes:
            process.expect_line(line, quiet_seconds)

    def send_signal(self, number):
        for process in self.processes:
            process.send_signal(number)

    def finish(self, quiet_seconds=HANGS_S):
        """The ranks' outputs; raises if one failed or hangs."""
        outputs = []
        for rank, process in self.by_rank.items():
            output, errors = process.finish(quiet_seconds)
            if process.returncode != 0:
                raise AssertionError(f"rank {rank} ended with {process.returncode}: {output}{errors}")
            outputs.append(output)
        return outputs
