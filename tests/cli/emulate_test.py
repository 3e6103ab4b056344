#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`spillway emulate` as its users see it: traces in, findings, pages and traces out.

    tests/cli/emulate_test.py PATH_TO_SPILLWAY
"""
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness import processes
from harness.processes import RankProcesses, free_port, python

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
FOREIGN = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data" / "chakra"
WITHOUT_FOREIGN = not FOREIGN.exists()

GOAL = """num_ranks 2
rank 0 {
l1: calc 1000
l2: send 4096b to 1 tag 0
l2 requires l1
}
rank 1 {
l1: recv 4096b from 0 tag 0
l2: calc 2000
l2 requires l1
}
"""

COMPUTES = {"Id": 1, "Name": "computes", "NodeType": 4, "runtime": 10, "data_deps": []}


def run(*arguments, cwd=None, variables=None):
    return processes.run([TOOL, "emulate", *arguments], cwd=cwd, env={**os.environ, **(variables or {})})


def run_ranks(ranks, *arguments, **variables):
    """Runs all ranks of a job on loopback; returns their outputs and exit codes."""
    with mock.patch.dict(os.environ, variables):
        job = RankProcesses(ranks, lambda rank: [TOOL, "emulate", *arguments], meeting=f"127.0.0.1:{free_port()}")
    with job:
        outputs = [process.finish() for process in job.processes]
        return outputs, [process.returncode for process in job.processes]


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path


class Check(Folder):
    def test_a_sound_trace_has_no_findings(self):
        for arguments in ((), ("--check",)):
            result = run("show", self.write("pair.goal", GOAL), *arguments)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("2 ranks, 4 nodes, 2 dependencies: 0 errors, 0 warnings", result.stdout)

    def test_what_cannot_run_is_named_and_the_exit_code_is_1(self):
        trace = self.write("pair.goal", GOAL.replace("send 4096b to 1 tag 0", "calc 1"))
        for arguments in ((), ("--check",)):
            result = run("show", trace, "--json", *arguments)
            self.assertEqual(result.returncode, 1)
            report = json.loads(result.stdout)
            self.assertEqual(report["counts"]["cannot run"], 1)
            texts = [finding["text"] for finding in report["findings"]]
            self.assertIn("message 0 from rank 0 to rank 1 with tag 0: rank 1 arrived, rank 0 did not", texts)

    def test_names_from_traces_cannot_move_the_cursor(self):
        computes = {**COMPUTES, "data_deps": [7, "\x1b[2J\x9b1A"]}
        for place in (self.write("\x1b[31m\x9bred.0.json", json.dumps(computes)),
                      self.write("group.0.json", json.dumps([COMPUTES, {**COMPUTES, "Name": "\x1b[2J\x9b1A"}]))):
            for arguments in ((), ("--json",), ("--check",), ("--check", "--json")):
                result = run("show", place, *arguments)
                self.assertNotRegex(result.stdout + result.stderr, "[\x1b\x9b]")

    def test_what_is_no_trace_gets_a_sentence(self):
        for name, text, sentence in (
            ("cut.0.et", "\x05ab", "ends inside a message"),
            ("odd.json", "{}", "workload_graph"),
            ("odd.goal", "num_ranks 1\nrank 0 {\nl1: jump\n}\n", "line 3"),
        ):
            result = run("show", "--check", self.write(name, text))
            self.assertEqual(result.returncode, 1, name)
            self.assertIn(sentence, result.stderr)
            self.assertIn(name, result.stderr)
        self.assertIn("no trace at", run("show", "--check", self.folder / "nothing").stderr)

    @unittest.skipIf(WITHOUT_FOREIGN, "no ../shared/data/chakra beside the checkout")
    def test_traces_that_others_wrote_are_sound(self):
        for place, nodes, edges in (
            ("ring_8npus_1MB", 280, 272),
            ("all_reduce_4npus_1MB/all_reduce", 4, 0),
            ("pytorch_real.0.et.gz", 3664, 181878),
        ):
            result = run("show", "--check", FOREIGN / place, "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            report = json.loads(result.stdout)
            self.assertEqual((report["nodes"], report["dependencies"]), (nodes, edges))
            self.assertEqual(report["errors"], 0)


class Show(Folder):
    def test_the_critical_path_goes_over_the_message(self):
        page = self.folder / "pair.html"
        result = run("show", self.write("pair.goal", GOAL), "--out", page, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        shown = json.loads(result.stdout)
        self.assertEqual([step["rank"] for step in shown["critical_path"]], [0, 0, 1, 1])
        self.assertEqual(shown["recorded_us"], 3.0)  # compute, an untimed message, compute
        text = page.read_text()
        self.assertIn("<svg", text)
        self.assertNotIn("src=", text)  # opens without a network
        self.assertNotIn("http", text)


class Convert(Folder):
    def test_what_is_converted_is_the_same_trace(self):
        trace = self.write("pair.goal", GOAL)
        for extra in ([], ["--gzip"]):
            out = self.folder / f"out{len(extra)}"
            result = run("convert", trace, "--out", out, *extra)
            self.assertEqual(result.returncode, 0, result.stderr)
            first = json.loads(run("show", trace, "--json").stdout)
            again = json.loads(run("show", out, "--json").stdout)
            self.assertEqual(first, again)


class Simulate(Folder):
    MODEL = ["--tensor", "2", "--data", "4", "--pipeline", "2", "--layers", "4", "--hidden", "512", "--micro-batches", "2"]

    def time_of(self, *arguments):
        result = run("simulate", *arguments, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        outcome = json.loads(result.stdout)
        self.assertTrue(outcome["finished"])
        return outcome["time_us"]

    def test_a_synthesized_trace_is_sound_and_takes_as_long_as_its_model(self):
        out = self.folder / "traces" / "llm"
        self.assertEqual(run("synthesize", out, *self.MODEL).returncode, 0)
        self.assertEqual(run("show", "--check", out).returncode, 0)
        self.assertEqual(self.time_of(out), self.time_of(*self.MODEL))

    def test_what_if_changes_the_answer(self):
        base = [*self.MODEL, "--rate", "10gbit", "--leaf-hosts", "4"]
        time = self.time_of(*base)
        self.assertLess(self.time_of(*self.MODEL, "--rate", "100gbit", "--leaf-hosts", "4"), time)
        self.assertGreater(self.time_of(*base, "--oversubscription", "8"), time)
        self.assertLess(self.time_of(*base, "--bits", "5"), time)
        self.assertGreater(self.time_of(*base, "--slow", "3=2"), time)
        self.assertLess(self.time_of(*base, "--node-ranks", "2"), time)
        self.assertEqual(self.time_of(*base), time)

    def test_packets_and_flows_are_near_each_other(self):
        base = [*self.MODEL, "--rate", "10gbit", "--set", "topology.spreading=packet"]
        flows, packets = (self.time_of(*base, "--level", level) for level in ("flows", "packets"))
        self.assertLess(abs(flows / packets - 1), 0.1)
        self.assertGreater(self.time_of(*base, "--level", "packets", "--transport", "tcp"), 0)

    def test_a_dead_rank_is_named_and_what_came_before_is_written(self):
        results = self.folder / "results.csv"
        result = run("simulate", *self.MODEL, "--dead", "3=1ms", "--results", results)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"of group '.*': ranks? .* arrived, ranks? .*3.* did not")
        lines = results.read_text().splitlines()
        self.assertEqual(lines[0], "what,group,members,bytes,began_us,ended_us")
        self.assertGreater(len(lines), 1)

    def test_wrong_options_get_a_sentence(self):
        for arguments, code, sentence in (
            (["--data", "64", "--set", "topology.hosts=4", "--leaf-hosts", "64"], 2, "--set: 64 ranks need as many hosts"),
            (["--slow", "x"], 2, "RANK=VALUE"),
            (["--slow", "99=2", "--data", "4"], 2, "--slow: there is no rank 99: ranks are 0 to 3"),
            (["--dead", "4=1ms", "--data", "4"], 2, "--dead: there is no rank 4: ranks are 0 to 3"),
            (["--tensor", "0"], 2, "--tensor: '0' is not a whole number from 1 to 1000000"),
            (["--layers", "99999999999999"], 2, "--layers: '99999999999999' is not a whole number from 1 to 1000000"),
            (["--expert", "3", "--data", "4"], 2, "must divide"),
            (["--rate", "fast"], 2, "fast"),
            (["--set", "nonsense"], 2, "'nonsense' is not noun.key=value"),
            (["--level", "packets", "--node-ranks", "2"], 2, "--level"),
        ):
            result = run("simulate", *arguments)
            self.assertEqual(result.returncode, code, arguments)
            self.assertIn(sentence, result.stderr)


    def test_ranks_compute_no_more_than_all_the_time(self):
        """Host and device at the same time, 10 us each."""
        nodes = [{**COMPUTES, "Id": number, "is_cpu_op": number == 2} for number in (1, 2)]
        trace = self.write("both.0.json", json.dumps({"workload_graph": nodes}))
        outcome = run("simulate", trace, "--json")
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        self.assertEqual(json.loads(outcome.stdout)["time_us"], 10)
        self.assertEqual(json.loads(outcome.stdout)["computing_share"], 1)

    def test_a_node_that_depends_on_itself_is_not_run(self):
        trace = self.write("self.goal", GOAL.replace("l2: calc 2000", "l2: calc 2000\nl2 requires l2"))
        result = run("simulate", trace)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("depends on itself", result.stderr)

    def test_files_that_are_no_rank_s_do_not_count(self):
        """The "._" files that macOS creates, and years that look like ranks."""
        self.assertEqual(run("synthesize", self.folder / "a", "--data", "2", "--layers", "1").returncode, 0)
        self.write("._a.0.et", "no trace")
        result = run("show", "--check", self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("2 ranks", result.stdout)
        alone = self.folder / "alone"
        alone.mkdir()
        dated = alone / "resnet.2024.json"
        dated.write_text(json.dumps({"workload_graph": [COMPUTES]}))
        for place in (dated, alone, alone / "resnet"):
            shown = run("show", "--check", place)
            self.assertIn("1 ranks, 1 nodes", shown.stdout, shown.stderr)


class Run(Folder):
    def test_a_rank_that_is_not_there_cannot_be_slow_or_die(self):
        trace = self.write("pair.goal", GOAL)
        for option in ("--slow", "--dead"):
            result = run("run", "--trace", trace, "--ranks-here", "2", option, "99=2s" if option == "--dead" else "99=2")
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(f"{option}: there is no rank 99: ranks are 0 to 1", result.stderr)

    def start(self, ranks, *arguments, **variables):
        return run_ranks(ranks, "run", *arguments, **variables)

    def test_replays_are_real_and_can_be_recorded_again(self):
        trace = self.folder / "llm"
        model = ["--tensor", "2", "--data", "2", "--layers", "2", "--hidden", "64", "--sequence", "64", "--flops", "1e9", "--steps", "2"]
        self.assertEqual(run("synthesize", trace, *model).returncode, 0)
        recorded = self.folder / "recorded"
        outputs, codes = self.start(4, "--trace", trace, "--json", SPILLWAY_EXECUTION_TRACE=str(recorded))
        self.assertEqual(codes, [0] * 4, outputs)
        replay = json.loads(outputs[0][0])["replays"][0]
        for rank in replay["ranks"]:
            self.assertGreaterEqual(rank["time_us"], rank["computing_us"])
            self.assertEqual(rank["operations"], 2 * 2 * (4 + 1))  # four per layer, plus its gradients
        # The recording is a trace of the replay: the same collectives among the same ranks, and more (barriers).
        self.assertEqual(run("show", "--check", recorded).returncode, 0, run("show", "--check", recorded).stdout)
        def calls(place):
            shown = json.loads(run("show", place, "--json").stdout)
            return {(row["what"], row["among"], row["bytes"]): row["calls"] for row in shown["communication"]}
        again = calls(recorded)
        for key, count in calls(trace).items():
            self.assertEqual(again[key], count)

    def test_jobs_share_a_network_and_ranks_a_process(self):
        for name, model in (("first", ["--tensor", "2", "--data", "2"]), ("second", ["--data", "4"])):
            self.assertEqual(run("synthesize", self.folder / name, *model, "--layers", "1", "--hidden", "64", "--sequence",
                                 "16", "--flops", "1e9").returncode, 0)
        both = self.folder / "both"
        merged = run("convert", self.folder / "first", self.folder / "second", "--out", both, "--among")
        self.assertIn("2 jobs, 8 ranks", merged.stdout, merged.stderr)
        self.assertEqual(run("show", "--check", both).returncode, 0, run("show", "--check", both).stdout)
        alone = run("run", "--trace", both, "--ranks-here", "8", "--json")
        self.assertEqual(alone.returncode, 0, alone.stderr)
        outputs, codes = self.start(2, "--trace", both, "--ranks-here", "4", "--json")
        self.assertEqual(codes, [0, 0], outputs)
        for said in (alone.stdout, outputs[0][0]):
            ranks = json.loads(said)["replays"][0]["ranks"]
            self.assertEqual([rank["operations"] for rank in ranks], [5, 1] * 4)  # of the first job, then the second
        self.assertIn("not the 8 of the trace", self.start(1, "--trace", both, "--ranks-here", "4")[0][0][1])
        self.assertIn("cannot be 3 in each", run("run", "--trace", both, "--ranks-here", "3").stderr)

    def test_what_cannot_run_is_refused_before_anybody_waits(self):
        trace = self.write("pair.goal", GOAL.replace("send 4096b to 1 tag 0", "calc 1"))
        outputs, codes = self.start(2, "--trace", trace)
        self.assertEqual(codes, [1, 1])
        self.assertIn("cannot be replayed", outputs[0][1])

    def test_who_dies_is_named_by_the_others(self):
        trace = self.folder / "llm"
        model = ["--data", "3", "--layers", "2", "--hidden", "64", "--sequence", "64", "--flops", "1e9", "--steps", "20"]
        self.assertEqual(run("synthesize", trace, *model).returncode, 0)
        outputs, codes = self.start(3, "--trace", trace, "--dead", "1=20ms")
        self.assertEqual(codes, [1] * 3, outputs)
        for rank in (0, 2):
            self.assertIn("rank 1", outputs[rank][1])

    def test_without_a_launcher_it_says_what_to_do(self):
        result = run("run", "--trace", self.write("pair.goal", GOAL))
        self.assertEqual(result.returncode, 1)
        self.assertIn("--preset", result.stderr)

    def test_the_lateness_of_waits_is_measured(self):
        result = run("run", "--lateness", "10", "1000", "--waits", "50", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([row["pending"] for row in json.loads(result.stdout)], [10, 1000])


# A real rank of a staged world without torch: its messages to the stage, and the answers.
RANK = """
import json, os, socket, time
link = socket.socket(socket.AF_UNIX)
link.connect(os.environ["SPILLWAY_STAGE"])
lines = link.makefile("rw")
def say(**said):
    lines.write(json.dumps(said) + "\\n"); lines.flush()
say(enter=int(os.environ["RANK"]))
told = json.loads(lines.readline())
assert (told["world"], os.environ["WORLD_SIZE"]) == (256, "256"), told
say(group=0, name="world", ranks=[])
at = time.monotonic_ns()
say(call="all_reduce", group=0, ticket=0, bytes=1000000, root=0, at=at)
answer = json.loads(lines.readline())
os.write(1, f"took {(answer['end'] - at) // 1000}\\n".encode())  # whole, beside the other rank's
say(leave={"waits": 1, "late_p50_us": 2.5})
"""


class Stage(Folder):
    def stage(self, *options):
        return run("stage", "--world", "256", "--real", "3,200", *options, "--", *python(self.write("rank.py", RANK)))

    def test_real_ranks_are_told_when_their_calls_end(self):
        report = self.folder / "report.json"
        result = self.stage("--rate", "10gbit", "--report", report)
        self.assertEqual(result.returncode, 0, result.stderr)
        # 2 x 1 MB at 94 % of 10 Gb/s: 1.7 ms, plus the later rank's delay.
        took = [int(line.split()[1]) for line in result.stdout.splitlines()]
        self.assertEqual(len(took), 2)
        self.assertGreater(min(took), 1600)
        said = json.loads(report.read_text())
        self.assertEqual((said["world"], said["real"], said["collectives"]), (256, [3, 200], 1))
        self.assertEqual(said["shapes"], [{"kind": "all-reduce", "ranks": 256, "stride": 1, "bytes": 1000000, "calls": 1}])
        self.assertEqual([rank["late_p50_us"] for rank in said["ranks"]], [2.5, 2.5])

    def test_measured_durations_go_before_the_networks(self):
        table = self.write("table.json", json.dumps({"table": 1, "rows": [
            {"kind": "all_reduce", "ranks": 256, "stride": 1, "bytes": 1000, "us": 1e6}]}))
        result = self.stage("--table", table, "--no-spread")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertGreaterEqual(min(int(line.split()[1]) for line in result.stdout.splitlines()), 1_000_000)

    def test_wrong_options_get_a_sentence(self):
        for options, code, words in ((("--world", "4", "--real", "4"), 2, "--real: real ranks must be different ones of 0 to 3"),
                                     (("--world", "4", "--real", "1", "--slow", "1=2"), 2, "--slow: rank 1 is no virtual rank"),
                                     (("--world", "4", "--real", "1", "--table", "nowhere"), 1, "cannot read nowhere"),
                                     (("--world", "4", "--real", "1", "--patience", "1ms"), 2, "100ms or more")):
            result = run("stage", *options, "--", "true")
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertIn(words, result.stderr)

    def test_a_rank_that_fails_is_the_runs_failure(self):
        result = run("stage", "--world", "4", "--real", "1,2", "--", "false")
        self.assertEqual(result.returncode, 1)

    def test_enter_needs_a_stage(self):
        result = run("enter", "--", "true")
        self.assertEqual(result.returncode, 1)
        self.assertIn("SPILLWAY_STAGE is not set", result.stderr)


class Calibrate(Folder):
    def calibrate(self, *options):
        """The table that four ranks of this machine make, through sockets."""
        out = self.folder / "table.json"
        said, codes = run_ranks(4, "calibrate", out, "--repeats", "2", "--rest", "0", *options,
                                SPILLWAY_SOCKET_IFNAME="=lo", SPILLWAY_LOCAL_COPY="0")
        self.assertEqual(codes, [0] * 4, said)
        return json.loads(out.read_text())

    def test_collectives_of_all_ranks_and_of_groups_are_measured(self):
        for options, ranks, stride in (((), 4, 1), (("--members", "2", "--stride", "2"), 2, 2)):
            table = self.calibrate("--bytes", "64,4096", "--kinds", "all_reduce,broadcast,barrier", *options)
            self.assertNotIn("memory", table)
            rows = table["rows"]
            self.assertEqual([(row["kind"], row["bytes"]) for row in rows],
                             [("all-reduce", 64), ("all-reduce", 4096), ("broadcast", 64), ("broadcast", 4096), ("barrier", 0)])
            self.assertTrue(all((row["ranks"], row["stride"]) == (ranks, stride) and row["us"] > 0 for row in rows), rows)

    def test_memory_is_measured_with_what_a_staged_run_had_under_way_at_once(self):
        shape = {"kind": "all-reduce", "ranks": 4, "stride": 1, "bytes": 16 << 20}
        report = self.write("report.json", json.dumps({"real": [0, 1], "shapes": [shape], "at_once": [shape]}))
        memory = self.calibrate("--like", report)["memory"]
        self.assertEqual(memory["real"], [0, 1])
        # A rank keeps four pieces of 512 KiB per peer for adding: 2 MiB for one peer, 6 MiB for three.
        self.assertTrue(1 << 20 <= memory["bytes"] <= 32 << 20, memory)

    def test_a_report_that_does_not_fit_is_refused(self):
        for report, words in (({"shapes": []}, "no report"), ({"shapes": [], "at_once": [], "real": [0]}, "no collectives")):
            result = run("calibrate", self.folder / "table.json", "--like", self.write("report.json", json.dumps(report)),
                         variables={"SPILLWAY_RANK": "0", "SPILLWAY_WORLD_SIZE": "1"})
            self.assertEqual(result.returncode, 1)
            self.assertIn(words, result.stderr)

    def test_without_a_launcher_it_says_what_to_do(self):
        result = run("calibrate", self.folder / "table.json")
        self.assertEqual(result.returncode, 1)
        self.assertIn("--preset NAME --ranks N", result.stderr)


if __name__ == "__main__":
    unittest.main()
