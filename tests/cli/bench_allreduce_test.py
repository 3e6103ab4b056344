#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`spillway bench allreduce` at small size: the table, the checks, and how its ranks end.

    tests/cli/bench_allreduce_test.py PATH_TO_SPILLWAY
"""
import json
import os
import pathlib
import signal
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.patience import wait_until
from harness.processes import STEADY, Started, free_port, run

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
# Types of a row's fields: those of nccl-tests, then Spillway's own.
NCCL_FIELDS = (int, int, str, str, int) + 2 * (float, float, float, int)
OWN_FIELDS = (float, float, float, float)
# The caller's environment must not influence the tests.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name not in ("RANK", "WORLD_SIZE") and not name.startswith(("SPILLWAY_", "OMPI_", "PMI_", "SLURM_"))} | STEADY


def bench(*arguments):
    return run([TOOL, "bench", "allreduce", "-n", "3", "-w", "1", *arguments], env=ENVIRONMENT)


def rows_of(text):
    """Parses rows as a reader of nccl-tests' output would; anything unexpected is an error."""
    rows = []
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        words = line.split()
        fields = NCCL_FIELDS + OWN_FIELDS
        if len(words) != len(fields):
            raise ValueError(f"{len(words)} fields for {len(fields)}: {line}")
        rows.append([kind(word) for kind, word in zip(fields, words)])
    return rows


def processes_with(word):
    """Processes that have `word` in their environment."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and word.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


class Table(unittest.TestCase):
    def table(self, *arguments):
        result = bench(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")  # no progress bar without a terminal
        return result.stdout

    def test_columns_are_where_nccl_tests_has_them(self):
        lines = self.table("-b", "4K", "-e", "4K").splitlines()
        header = next(line for line in lines if line.startswith("#       size"))
        row = next(line for line in lines if not line.startswith("#"))
        expected = ("#       size         count      type   redop    root"
                    "     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong ")
        self.assertTrue(header.startswith(expected), header)
        self.assertEqual(len(header), len(row))
        self.assertEqual(row[:52], "        4096          1024     float     sum      -1")
        self.assertIn("# Out of bounds values : 0 OK", lines)
        self.assertTrue(lines[-3].startswith("# Avg bus bandwidth    : "), lines[-3])
        self.assertEqual(lines[-1], "# Collective test concluded: all_reduce_perf")

    def test_sums_of_two_and_four_ranks_are_right(self):
        for ranks, through_sockets in ((2, True), (4, True), (2, False), (4, False)):
            with unittest.mock.patch.dict(ENVIRONMENT, SPILLWAY_LOCAL_COPY=str(int(not through_sockets))):
                table = self.table("--ranks", str(ranks), "-b", "4", "-e", "1M", "-f", "64")
            rows = rows_of(table)
            self.assertEqual([row[0] for row in rows], [4, 256, 16384, 1048576])
            for row in rows:
                self.assertEqual((row[1], row[2], row[3]), (row[0] // 4, "float", "sum"))
                for time_us, algbw, busbw, wrong in (row[5:9], row[9:13]):
                    self.assertEqual(wrong, 0)
                    self.assertGreater(time_us, 0)
                    self.assertAlmostEqual(busbw, algbw * 2 * (ranks - 1) / ranks, delta=0.011)
                self.assertEqual((row[14], row[15]), (0, 0))  # nothing trimmed or lost
                self.assertLess(row[16], 1e-12)
            # Bytes on the wire for each float: four, plus retransmissions on a busy machine. Ranks that read each
            # other's memory send almost none.
            least, most = (3.5, 12) if through_sockets else (0, 0.5)
            self.assertTrue(least <= rows[-1][13] < most, rows[-1])

    def test_every_type_reduction_and_algorithm_is_right(self):
        for arguments in (("-d", "double", "-o", "avg"), ("-d", "half", "--algorithm", "ring"),
                          ("-d", "bfloat16"), ("-d", "int32", "-o", "min"), ("-d", "int64", "-o", "avg"),
                          ("-o", "max", "--algorithm", "tree", "--in-flight", "3"), ("--algorithm", "tree")):
            result = bench("--ranks", "3", "-b", "100000", "-e", "100000", "--json", *arguments)
            self.assertEqual(result.returncode, 0, result.stderr)
            row = json.loads(result.stdout)["results"][0]
            self.assertEqual((row["out_of_place"]["nwrong"], row["in_place"]["nwrong"]), (0, 0), arguments)
            self.assertTrue(row["replicas_agree"], arguments)

    def test_through_servers_sums_have_the_same_bits(self):
        for arguments in (("--servers", "1"), ("--servers", "2", "-d", "half"),
                          ("--servers", "2", "--codec", "planes")):
            result = bench("--ranks", "3", "-b", "100000", "-e", "100000", "--json", *arguments)
            self.assertEqual(result.returncode, 0, result.stderr)
            row = json.loads(result.stdout)["results"][0]
            self.assertEqual(row["algorithm"], "servers")
            self.assertTrue(row["replicas_agree"], arguments)
            self.assertIn(row["in_place"]["nwrong"], (0, None), arguments)

    def test_codes_that_switches_can_add(self):
        for arguments, code, precision, largest_nmse in (
                (("--codec", "levels"), "levels", 4, 0.05), (("--codec", "levels", "--bits", "8"), "levels", 8, 0.01),
                (("--codec", "blocks", "--algorithm", "switch"), "blocks", 16, 1e-9)):
            result = bench("--ranks", "3", "-b", "400000", "-e", "400000", "--json", "--loss-bound", "0", *arguments)
            self.assertEqual(result.returncode, 0, result.stderr)
            report = json.loads(result.stdout)
            tolerance, row = report["config"]["tolerance"], report["results"][0]
            self.assertEqual((tolerance["codec"], tolerance["precision"], row["algorithm"]), (code, precision, "switch"))
            self.assertTrue(row["replicas_agree"], arguments)
            self.assertLess(row["nmse"], largest_nmse, arguments)
            # No switch on loopback adds: every part arrived unsummed.
            self.assertEqual(row["traffic"]["parts_added"], 0)
            self.assertEqual(row["traffic"]["parts_alone"], row["traffic"]["packets"])

    def test_a_switch_adds_only_what_is_coded_for_it(self):
        result = bench("-b", "4K", "-e", "4K", "--algorithm", "switch")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("the codec levels or blocks", result.stderr)

    def test_json_says_what_the_table_says(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "result.json"
            rows = rows_of(self.table("-b", "64K", "-e", "128K", "-i", "64K", "-J", path))
            report = json.loads(path.read_text())
        self.assertEqual(report["out_of_bounds"], {"count": 0, "okay": "true"})
        self.assertEqual(report["config"]["ranks"], 2)
        self.assertEqual(len(report["results"]), len(rows))
        for row, result in zip(rows, report["results"]):
            self.assertEqual((row[0], row[1]), (result["size"], result["count"]))
            for place, (time_us, algbw, _, _) in (("out_of_place", row[5:9]), ("in_place", row[9:13])):
                times = result[place + "_per_iter"]
                self.assertEqual(len(times["times_us"]), 3)
                self.assertAlmostEqual(result[place]["time"], sum(times["times_us"]) / 3, delta=1e-3)
                self.assertLess(abs(time_us - result[place]["time"]), 1.0)
                self.assertAlmostEqual(algbw, row[0] / result[place]["time"] / 1e3, delta=0.01)
                self.assertLessEqual(times["min_us"], times["p50_us"])
                self.assertLessEqual(times["p50_us"], times["p99_us"])

    def test_single_iterations_have_columns(self):
        text = self.table("-b", "4K", "-e", "4K", "-I")
        row = next(line for line in text.splitlines() if not line.startswith("#")).split()
        self.assertEqual(len(row), len(NCCL_FIELDS) + len(OWN_FIELDS) + 10)
        minimum, maximum, p99 = (float(word) for word in row[9:12])
        self.assertLessEqual(minimum, p99)
        self.assertLessEqual(p99, maximum)


class Usage(unittest.TestCase):
    def test_wrong_usage_exits_with_2(self):
        for arguments in (("-d", "float8"), ("-o", "prod"), ("-b", "1M", "-e", "1K"), ("-b", "2", "-e", "2"),
                          ("-b", "many"), ("--ranks", "0"), ("--compare", "nccl"), ("--bits", "33"), ("--codec", "thc"),
                          ("--loss-bound", "2"), ("-i", "0"), ("-b", "4", "-e", "1G", "-i", "4")):
            result = bench(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertEqual(result.stdout, "", arguments)

    def test_a_name_that_there_is_not_is_answered_with_those_that_there_are(self):
        result = bench("--op", "prod")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--op: 'prod' is none of avg, max, min, sum", result.stderr)

    def test_help_has_examples(self):
        self.assertIn("Examples", bench("--help").stdout)

    def test_a_file_that_cannot_be_written_is_an_error(self):
        result = bench("-b", "4", "-e", "4", "-J", "/nonexistent/result.json")
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nonexistent/result.json", result.stderr)


class Ends(unittest.TestCase):
    """A benchmark that would run for minutes ends on request and leaves nothing behind."""

    def start(self, *arguments):
        self.mark = f"BENCH_ALLREDUCE_TEST={os.getpid()}-{self.id()}"
        name, value = self.mark.split("=")
        command = [TOOL, "bench", "allreduce", "--ranks", "3", "-n", "100000", "-b", "1M", "-e", "1M", *arguments]
        process = Started(command, test=self, env=ENVIRONMENT | {name: value})
        self.assertTrue(process.line().startswith("# spillway"))  # the ranks have met
        return process

    def rank_of(self, process, rank):
        for pid in processes_with(self.mark):
            if f"SPILLWAY_RANK={rank}".encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                return pid
        self.fail(f"no rank {rank}")

    def assert_nothing_stays(self):
        wait_until(lambda: not processes_with(self.mark), "the end of all ranks")

    def test_a_killed_rank_is_named_and_ends_all(self):
        for rank in (0, 1):
            process = self.start()
            os.kill(self.rank_of(process, rank), signal.SIGKILL)
            _, errors = process.finish()
            self.assertEqual(process.returncode, 1)
            self.assertIn(f"rank {rank} was killed by signal 9", errors)
            self.assert_nothing_stays()

    def test_an_interrupt_ends_all(self):
        process = self.start()
        process.send_signal(signal.SIGINT)
        _, errors = process.finish()
        self.assertEqual(process.returncode, 128 + signal.SIGINT)
        self.assertEqual(errors, "")
        self.assert_nothing_stays()

    def test_ranks_do_not_outlive_who_started_them(self):
        process = self.start()
        process.kill()
        process.finish()
        self.assert_nothing_stays()


class Launchers(unittest.TestCase):
    def test_under_a_launcher_it_is_one_rank(self):
        command = [TOOL, "bench", "allreduce", "-n", "2", "-b", "4K", "-e", "4K", "--compare", "mpi"]
        port = str(free_port())
        ranks = [Started(command, test=self,
                         env=ENVIRONMENT | {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                                            "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": port})
                 for rank in (0, 1)]
        outputs = [rank.finish() for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], outputs)
        self.assertEqual(len(rows_of(outputs[0][0])), 1)
        self.assertIn("# mpi: not measured: mpirun starts ranks of its own", outputs[0][0])
        self.assertEqual(outputs[1], ("", ""))


class Rivals(unittest.TestCase):
    def compare(self, name):
        result = bench("-b", "64K", "-e", "64K", "--compare", name, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        row = json.loads(result.stdout)["results"][0]
        rival = row["rivals"][name]
        if "not_measured" in rival:
            self.skipTest(rival["not_measured"])
        self.assertEqual(len(rival["per_iter"]["times_us"]), 3)
        self.assertAlmostEqual(rival["bus_bw_ratio"], row["in_place"]["bus_bw"] / rival["bus_bw"], delta=1e-6)
        self.assertAlmostEqual(rival["bus_bw"], rival["alg_bw"], delta=1e-6)  # two ranks: equal

    def test_gloo_is_measured_beside(self):
        self.compare("gloo")

    def test_open_mpi_is_measured_beside(self):
        self.compare("mpi")

    def test_a_python_without_torch_is_no_error(self):
        result = bench("-b", "4K", "-e", "4K", "--compare", "gloo", "--python", "/bin/false")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(rows_of(result.stdout)), 1)
        self.assertIn("# gloo: not measured: /bin/false did not start it", result.stdout)


if __name__ == "__main__":
    unittest.main()
