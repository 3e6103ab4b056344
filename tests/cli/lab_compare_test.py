#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`spillway lab compare` at small size: the table, the JSON, the page, and how it ends.

    tests/cli/lab_compare_test.py PATH_TO_SPILLWAY
"""
import contextlib
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.patience import patience, wait_until
from harness.processes import Started, run
from harness.tiers import TierLoader, long_tier

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
WORKER = pathlib.Path(__file__).resolve().parent / "compare_worker.py"
# Not sys.executable, which may be executable only for its owner.
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
COMMAND = ("--", PYTHON, WORKER, "{backend}", "{transport}", "{log}")
TRANSPORTS = {"tcp": ("gloo", None), "tcp-fp16": ("gloo", None), "tcp-powersgd": ("gloo", None),
              "spillway-exact": ("spillway", "exact"), "spillway-16": ("spillway", "planes"),
              "spillway": ("spillway", "planes"), "spillway-flat": ("spillway", "planes"),
              "spillway-over-tcp": ("spillway", "planes")}
# --allow-late: a busy machine is not a failure of the tool.
NETWORK = ("--preset", "clean", "--hosts", "2", "--rate", "200mbit", "--allow-late")
# The caller's environment must not influence the tests.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith("SPILLWAY_") and name != "PYTHONPATH"}


def compare(*arguments, environment=ENVIRONMENT, **options):
    return run([TOOL, "lab", "compare", *arguments], env=environment, **options)


def can_isolate():
    return run([TOOL, "lab", "run", "--hosts", "2", "--isolation", "root", "--allow-late", "--quiet", "--",
                "true"]).returncode == 0


NEEDS_NAMESPACES = unittest.skipUnless(can_isolate(), "network namespaces need root")


class InAFolder(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name) / "out"


class Usage(InAFolder):
    def test_help_has_examples_and_the_log(self):
        text = compare("--help").stdout
        for word in ("Examples:", "{backend}", "{log}", "step_ms", "accuracy", "SPILLWAY_CODEC", "--transports", "--rounds",
                     *TRANSPORTS):
            self.assertIn(word, text)

    def test_wrong_usage_exits_with_2_and_runs_nothing(self):
        for wrong in (("--transports", "udp"), ("--transports", "tcp,tcp"), ("--target-accuracy", "many"),
                      ("--target-accuracy", "150%"), ("--preset", "clean", "--scenario", "x"), ("--rounds", "0"),
                      ("--tcp", "bbr"),  # the transport determines it
                      ("--limit", "900"), ("--limit", "soon"), ("--env", "FOO"), ("--loss", "200%"),
                      ("--bursty", "x"), ("--buffer", "x")):
            result = compare(*wrong, "--out", self.folder, "--", "true")
            self.assertEqual(result.returncode, 2, (wrong, result.stderr))
            self.assertFalse(self.folder.exists(), wrong)
            if wrong[0] not in ("--preset", "--tcp"):  # these errors are about values of other options
                self.assertIn(wrong[0], result.stderr)
        self.assertEqual(compare("--out", self.folder).returncode, 2)

    def test_a_folder_that_cannot_be_made_is_named(self):
        result = compare("--out", "/dev/null/x", "--", "true")
        self.assertEqual(result.returncode, 1)
        self.assertIn("/dev/null/x", result.stderr)

    def test_lab_run_names_the_option_that_is_wrong(self):
        for option, value in (("--env", "FOO"), ("--loss", "200%")):
            result = run([TOOL, "lab", "run", option, value, "--", "true"], env=ENVIRONMENT)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(f"{option}: ", result.stderr)
            self.assertIn(value, result.stderr)

    def test_a_command_that_is_not_there_is_named(self):
        result = compare(*NETWORK, "--out", self.folder, "--", "no-such-program", "{backend}")
        self.assertEqual(result.returncode, 1)
        self.assertIn("no-such-program", result.stderr)

    @NEEDS_NAMESPACES
    def test_a_run_that_cannot_be_made_leaves_the_others_alone(self):
        program = self.folder.parent / "only-tcp"
        program.symlink_to("/bin/true")
        result = compare(*NETWORK, "--transports", "tcp,spillway-exact", "--json", "--out", self.folder, "--",
                         self.folder.parent / "only-{transport}")
        self.assertEqual(result.returncode, 1, result.stderr)
        report = json.loads(result.stdout)
        first, second = report["runs"]
        self.assertIsNone(first["failure"])
        self.assertGreater(first["metrics"]["elapsed_seconds"], 0)
        self.assertIn("only-spillway-exact", second["failure"])
        self.assertIn("only-spillway-exact", result.stderr)
        self.assertTrue(any(note.startswith("spillway-exact: ") for note in report["notes"]), report["notes"])
        self.assertIn("failed: not started", (self.folder / "report.html").read_text())


@NEEDS_NAMESPACES
class TwoTransports(InAFolder):
    def test_the_table_has_runs_ratios_and_notes(self):
        result = compare(*NETWORK, "--transports", "tcp,spillway", "--out", self.folder, *COMMAND)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, r"^\[1/2\] tcp runs\n\[1/2\] tcp took \d+ s, 20 steps of 12.0 ms \(median\)\n"
                                        r"\[2/2\] spillway runs\n\[2/2\] spillway took ")
        lines = result.stdout.splitlines()
        self.assertEqual(lines[0].split(), ["tcp", "(cubic)", "spillway", "ratio"])
        cells = [re.split(r"\s{2,}", line.strip()) for line in lines[1:14]]
        rows = {label: values for label, *values in cells}
        self.assertEqual(rows["step time, median"], ["12.0 ms", "6.0 ms", "0.50x"])  # of steps 4 to 20
        self.assertEqual(rows["longest of the first 3 steps"], ["3.0 ms", "1.5 ms", "0.50x"])
        self.assertEqual(rows["step time, 99th percentile"], ["20.0 ms", "10.0 ms", "0.50x"])
        self.assertEqual(rows["time to 90.0 % accuracy"], ["0.20 s", "0.10 s", "0.50x"])
        self.assertEqual(rows["final accuracy"], ["90.0 %", "90.0 %", "1.00x"])
        for label in ("time in all", "bytes on the wire", "packets trimmed", "packets lost", "processor time"):
            self.assertIn(label, rows)
        for transport in ("tcp", "spillway"):
            self.assertIn(f"Note: {transport}: lines of {self.folder}/{transport}.jsonl that were not understood "
                          "and are left out: 1", lines)
        self.assertEqual(lines[-1], f"Page: {self.folder}/report.html")
        (split,) = [re.split(r"\s{2,}", line.strip()) for line in lines[14:]
                    if line.strip().startswith("spillway ")]
        self.assertEqual(split, ["spillway", "2.00x", "-", "-", "-", "spillway-over-tcp"])

    def test_a_gain_is_split_into_bits_and_transport(self):
        result = compare(*NETWORK, "--transports", "tcp,spillway-over-tcp,spillway", "--json", "--out", self.folder,
                         *COMMAND)
        self.assertEqual(result.returncode, 0, result.stderr)
        split = json.loads(result.stdout)["split"]
        self.assertEqual(split["metric"], "step_p50_ms")
        self.assertIn("by bits", split["explanation"])
        over_tcp, ours = split["shares"]
        self.assertEqual((over_tcp["transport"], over_tcp["gain"], over_tcp["bits"], over_tcp["by_transport"]),
                         ("spillway-over-tcp", 2.0, 2.0, 1.0))
        self.assertEqual((ours["transport"], ours["gain"], ours["bits"], ours["by_transport"]), ("spillway", 2.0, 2.0, 1.0))
        self.assertIn("Where the gain comes from", (self.folder / "report.html").read_text())

    def test_transports_take_turns(self):
        result = compare(*NETWORK, "--transports", "tcp,spillway", "--rounds", "2", "--json", "--out", self.folder,
                         *COMMAND, "5")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(report["rounds"], 2)
        for run in report["runs"]:
            times = run["by_round"]["elapsed_seconds"]
            self.assertEqual(len(times), 2)
            self.assertAlmostEqual(run["metrics"]["elapsed_seconds"], sum(times) / 2)
        written = [self.folder / name for name in ("tcp.txt", "spillway.txt", "tcp.2.txt", "spillway.2.txt")]
        self.assertEqual(sorted(written, key=lambda path: path.stat().st_mtime_ns), written)
        self.assertEqual(sum("spillway.2.jsonl" in note or "spillway.jsonl" in note for note in report["notes"]), 2)

    def test_json_holds_metrics_ratios_and_series(self):
        for dataplane in ("user", "bpf"):
            result = compare(*NETWORK, "--transports", "tcp,spillway-exact", "--dataplane", dataplane, "--json",
                             "--target-accuracy", "45%", "--out", self.folder, *COMMAND)
            if dataplane == "bpf" and result.returncode != 0 and "kernel" in result.stderr:
                continue  # this machine has no kernel switch
            self.assertEqual(result.returncode, 0, result.stderr)
            report = json.loads(result.stdout)
            self.assertEqual(report, json.loads((self.folder / "report.json").read_text()))
            self.check_report(report, dataplane)

    def check_report(self, report, dataplane):
        self.assertEqual(report["target_accuracy"], 0.45)
        self.assertEqual(report["network"]["hosts"], "2 under one switch")
        first, second = report["runs"]
        self.assertEqual((first["transport"], first["backend"]), ("tcp", "gloo"))
        self.assertEqual((second["transport"], second["backend"]), ("spillway-exact", "spillway"))
        self.assertEqual((first["tcp"], first["hook"], first["steps_from"]), ("cubic", None, "log"))
        self.assertEqual(report["network"]["TCP"], "cubic")
        self.assertAlmostEqual(second["metrics"]["seconds_to_target"], 0.05)
        self.assertAlmostEqual(second["ratios"]["step_p99_ms"], 0.5)
        for run in (first, second):
            self.assertEqual((run["exit_codes"], run["bad_lines"], run["steps"]), ([0, 0], 1, 20))
            self.assertEqual(run["dataplane"], dataplane)
            self.assertEqual(len(run["evaluations"]), 4)
            metrics, samples = run["metrics"], run["samples"]
            self.assertGreater(metrics["wire_bytes"], 20 * 100_000)
            self.assertGreater(metrics["cpu_seconds"], 0)
            self.assertGreater(metrics["elapsed_seconds"], 0)
            self.assertGreaterEqual(len(samples), 2)
            self.assertEqual([sample["seconds"] for sample in samples],
                             sorted(sample["seconds"] for sample in samples))
            self.assertEqual(samples[-1]["sent_bytes"], metrics["wire_bytes"])
            self.assertLess(samples[0]["sent_bytes"], metrics["wire_bytes"])

    def test_the_command_is_told_its_transport_and_where_the_package_is(self):
        environment = ENVIRONMENT | {"SPILLWAY_CARRIER": "tcp"}  # must not apply to these runs
        result = compare(*NETWORK, "--transports", ",".join(TRANSPORTS), "--out", self.folder, *COMMAND, "5",
                         environment=environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        for transport, (backend, codec) in TRANSPORTS.items():
            lines = (self.folder / f"{transport}.txt").read_text().splitlines()
            self.assertEqual(sorted(line[:4] for line in lines), ["[0] ", "[1] "])
            for line in lines:
                told = json.loads(line[4:])
                self.assertEqual((told["transport"], told["backend"], told["SPILLWAY_CODEC"]),
                                 (transport, backend, codec))
                self.assertEqual(told["tcp"], "cubic")
                has_hook = backend == "gloo" or transport == "spillway-flat"
                self.assertEqual(told["SPILLWAY_LAB_HOOK"], transport.partition("-")[2] if has_hook else "")
                self.assertEqual(told["SPILLWAY_BITS"], "16" if transport == "spillway-16" else None)
                if backend == "spillway":
                    self.assertEqual(told["SPILLWAY_CARRIER"], "tcp" if transport == "spillway-over-tcp" else "auto")
                watch, python = map(pathlib.Path, told["PYTHONPATH"].split(":"))
                for file in (python / "spillway" / "__init__.py", watch / "sitecustomize.py"):
                    self.assertTrue(file.is_file(), file)
                library = TOOL.parent.parent / "lib" / "libspillway.so.0"
                self.assertEqual(told["SPILLWAY_LIBRARY"], str(library) if library.exists() else None)

    def test_bbr_is_bbr(self):
        result = compare(*NETWORK, "--transports", "tcp-bbr", "--out", self.folder, *COMMAND, "5")
        if "'bbr' is not available" in result.stderr:
            self.skipTest("this kernel has no bbr")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads((self.folder / "tcp-bbr.txt").read_text().splitlines()[0][4:])["tcp"], "bbr")

    def test_what_the_user_set_stays(self):
        environment = ENVIRONMENT | {"PYTHONPATH": "/mine", "SPILLWAY_LIBRARY": "/also/mine"}
        result = compare(*NETWORK, "--transports", "tcp", "--env", "SPILLWAY_LIBRARY=/of/the/option", "--out",
                         self.folder, *COMMAND, environment=environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        told = json.loads((self.folder / "tcp.txt").read_text().splitlines()[0][4:])
        self.assertEqual((told["PYTHONPATH"].split(":")[1:], told["SPILLWAY_LIBRARY"]), (["/mine"], "/of/the/option"))

    def test_an_old_log_is_not_taken_for_a_new_one(self):
        self.folder.mkdir()
        (self.folder / "tcp.jsonl").write_text('{"event":"step","step":1,"seconds":1,"step_ms":1}\n')
        result = compare(*NETWORK, "--transports", "tcp", "--json", "--out", self.folder, "--", "true")
        self.assertEqual(result.returncode, 0, result.stderr)
        run = json.loads(result.stdout)["runs"][0]
        self.assertEqual(run["steps"], 0)
        self.assertIsNone(run["metrics"]["step_p50_ms"])

    def test_a_command_without_a_log_is_compared_by_time_and_bytes(self):
        result = compare(*NETWORK, "--transports", "tcp,spillway", "--json", "--out", self.folder, "--",
                         PYTHON, WORKER, "none", "none", "/dev/null", "5")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("only variables such as SPILLWAY_CODEC", result.stdout)
        for run in json.loads(result.stdout)["runs"]:
            self.assertIsNone(run["metrics"]["step_p50_ms"])
            self.assertGreater(run["metrics"]["elapsed_seconds"], 0)
            self.assertGreater(run["metrics"]["wire_bytes"], 0)
        page = (self.folder / "report.html").read_text()
        self.assertIn("the lab saw no steps", page)
        self.assertIn("nothing to show", page)


@NEEDS_NAMESPACES
class OnTime(InAFolder):
    @long_tier
    def test_a_rate_that_no_machine_emulates_is_refused_with_one_that_it_does(self):
        result = compare("--hosts", "2", "--rate", "40gbit", "--dataplane", "user", "--out", self.folder, "--", "true")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"emulates these links on time up to \d+[mk]bit, not at 40000mbit|"
                                        "does not emulate the network on time")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_many_transports_have_a_row_each(self):
        result = compare(*NETWORK, "--transports", ",".join(TRANSPORTS), "--out", self.folder, *COMMAND, "5")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        # After five steps the accuracy tells nothing, so there is no such column.
        self.assertEqual(re.split(r"\s{2,}", lines[0].strip())[:5],
                         ["median step", "p99", "tenants", "tenants' bytes", "gain"])
        self.assertEqual([line.split()[0] for line in lines[1:1 + len(TRANSPORTS)]], list(TRANSPORTS))


@NEEDS_NAMESPACES
class Ends(InAFolder):
    def test_a_failure_is_told_and_the_others_still_run(self):
        script = "import sys; print('about to fail'); sys.exit(3 if sys.argv[1] == 'tcp' else 0)"
        result = compare(*NETWORK, "--transports", "tcp,spillway", "--out", self.folder, "--", PYTHON, "-c", script,
                         "{transport}")
        self.assertEqual(result.returncode, 3)
        self.assertIn("over tcp the command failed with exit code 3", result.stderr)
        self.assertIn("] about to fail", result.stderr)
        self.assertIn("Note: tcp: rank", result.stdout)
        self.assertIn("about to fail", (self.folder / "spillway.txt").read_text())

    def test_the_rank_that_failed_first_is_told_first(self):
        script = f"""
import os, sys, time
if os.environ["RANK"] == "1":
    sys.exit("ValueError: the cause")
while "rank 1 on host1 exited with 1" not in open("{self.folder}/tcp.txt").read():
    time.sleep(0.01)
print("connection reset\\n" * 50, flush=True)
sys.exit(5)
"""
        result = compare(*NETWORK, "--transports", "tcp", "--grace", "3600", "--out", self.folder, "--", PYTHON, "-c",
                         script)
        self.assertEqual(result.returncode, 5, result.stderr)
        lines = result.stderr.splitlines()
        told = lines.index("spillway: rank 1 failed first, with exit code 1; the end of what it printed:")
        self.assertEqual(lines[told + 1], "[1] ValueError: the cause")
        self.assertEqual(lines[told + 2], f"spillway: the end of {self.folder}/tcp.txt without rank 1:")
        self.assertEqual(lines.count("[0] connection reset"), 11)  # and one empty line
        self.assertIn("Note: tcp: rank 1 failed first, with exit code 1; what it printed is in", result.stdout)

    def test_a_run_that_hangs_is_ended_and_the_others_still_run(self):
        script = "import signal, sys; print('runs', flush=True); sys.argv[1] == 'tcp' and signal.pause()"
        result = compare(*NETWORK, "--transports", "tcp,spillway", "--limit", f"{patience(5):.0f}s", "--out",
                         self.folder, "--", PYTHON, "-c", script, "{transport}")
        self.assertEqual(result.returncode, 124, result.stderr)
        self.assertRegex(result.stderr, r"run over tcp: ended after \d+ s, at its limit \(--limit\)")
        self.assertIn("[0] runs", result.stderr)
        (row,) = [line for line in result.stdout.splitlines() if line.startswith("  result ")]
        self.assertEqual(re.split(r"\s{2,}", row.strip())[1], "failed: limit")
        self.assertRegex(result.stdout, r"Note: tcp: ended after \d+ s, at its limit")
        self.assertEqual(json.loads((self.folder / "report.json").read_text())["runs"][1]["transport"], "spillway")

    def interrupted(self, number, *options):
        """A comparison whose second run is under way; over tcp the command ends normally."""
        mark = f"compare-test-{os.getpid()}"
        script = "import signal, sys; print('runs', flush=True); sys.argv[1] == 'tcp' or signal.pause()"
        process = Started([TOOL, "lab", "compare", *NETWORK, "--transports", "tcp,spillway,spillway-exact", *options,
                           "--out", self.folder, "--", PYTHON, "-c", script, "{transport}", mark], test=self,
                          env=ENVIRONMENT)
        output = self.folder / "spillway.txt"
        wait_until(lambda: output.exists() and output.read_text().count("runs") == 2, "both ranks")
        process.send_signal(number)
        printed, errors = process.finish()
        self.assertEqual(process.returncode, 128 + number, errors)
        self.assertFalse((self.folder / "spillway-exact.txt").exists())
        wait_until(lambda: not processes_with(mark), "the end of all ranks")
        return printed

    def test_an_interrupt_ends_all_of_it_and_leaves_what_there_is(self):
        printed = self.interrupted(signal.SIGINT)
        self.assertEqual(printed.splitlines()[0].split(), ["tcp", "(cubic)", "spillway", "ratio"])
        self.assertRegex(printed, r"\n  result +done +stopped")
        self.assertRegex(printed, r"\nNote: spillway: stopped by signal 2 after \d+ s")
        self.assertIn("\nNote: not run: spillway-exact", printed)
        self.assertIn("Spillway", (self.folder / "report.html").read_text())

    def test_so_does_the_end_of_a_session_in_json(self):
        report = json.loads(self.interrupted(signal.SIGTERM, "--json"))
        self.assertEqual(report, json.loads((self.folder / "report.json").read_text()))
        first, second = report["runs"]
        self.assertGreater(first["metrics"]["elapsed_seconds"], 0)
        self.assertIsNone(first["failure"])
        self.assertIn("stopped by signal 15", second["failure"])
        self.assertIsNone(second["metrics"]["elapsed_seconds"])

    def test_an_interrupt_of_the_trial_is_told_by_the_exit_code(self):
        rate = 100_000 + os.getpid() % 100_000  # no other process has it
        process = None

        def a_rank_of_the_trial_stands_still():
            """Keeps the trial from ending before the interrupt."""
            for rank in processes_with(f"load\0--rate\0{rate}000\0"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rank, signal.SIGSTOP)
                    return True
            return process.poll() is not None

        while process is None or process.poll() is not None:  # this test itself may have been too slow
            process = Started([TOOL, "lab", "compare", "--hosts", "2", "--rate", f"{rate}kbit", "--dataplane", "user",
                               "--transports", "tcp", "--out", self.folder, "--", "true"], test=self, env=ENVIRONMENT)
            wait_until(a_rank_of_the_trial_stands_still, "the trial")
        process.send_signal(signal.SIGINT)
        process.finish()
        self.assertEqual(process.returncode, 128 + signal.SIGINT)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_terminal_sees_progress(self):
        master, slave = pty.openpty()
        command = [TOOL, "lab", "compare", *NETWORK, "--transports", "tcp", "--out", self.folder, *COMMAND, "60"]
        process = Started(command, test=self, stderr=slave, env=ENVIRONMENT)
        os.close(slave)
        shown = b""
        try:
            while part := os.read(master, 65536):
                shown += part
        except OSError:  # the other end closed it
            pass
        os.close(master)
        process.finish()
        self.assertEqual(process.returncode, 0)
        self.assertIn(b"[1/1] tcp  ", shown)
        self.assertIn(b"[1/1] tcp took ", shown)
        self.assertIn(b"  step ", shown)
        self.assertIn(b" KiB  trimmed ", shown)
        self.assertTrue(shown.endswith(b"\r\x1b[K"), shown[-40:])


def processes_with(word):
    """Processes that have `word` in their command line."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and word.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


if __name__ == "__main__":
    unittest.main(testLoader=TierLoader())
