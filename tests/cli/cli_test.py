#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command-line tool as its users see it: help, exit codes, files, JSON.

    tests/cli/cli_test.py PATH_TO_SPILLWAY
"""
import json
import pathlib
import re
import socket
import struct
import sys
import tempfile
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness import processes
from harness.patience import patience
from harness.processes import Started

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
SCENARIOS = pathlib.Path(__file__).resolve().parents[1] / "scenarios"
GRADIENT = pathlib.Path(__file__).resolve().parents[1] / "data" / "gradients" / "conv_step300.f32"


def run(*arguments, cwd=None):
    return processes.run([TOOL, *arguments], cwd=cwd)


class Help(unittest.TestCase):
    def test_every_command_has_help_with_an_example(self):
        commands = [[]]
        for command in commands:  # grows: the commands that a help lists are looked at, too
            result = run(*command, "--help")
            self.assertEqual(result.returncode, 0, command)
            self.assertIn("Example", result.stdout, command)
            listed = result.stdout.partition("\nSubcommands:\n")[2].partition("\n\n")[0]
            commands += [[*command, verb] for verb in re.findall(r"(?m)^  ([a-z]+) ", listed)]
        for command in (["codec"], ["bench", "transport"], ["emulate", "show"], ["job", "status"], ["server"]):
            self.assertIn(command, commands)

    def test_internal_commands_are_hidden(self):
        for noun, verb in (("lab", "load"), ("emulate", "enter")):
            self.assertNotRegex(run(noun, "--help").stdout, rf"(?m)^  {verb} ")
            self.assertEqual(run(noun, verb, "--help").returncode, 0)

    def test_version_is_a_version(self):
        self.assertRegex(run("--version").stdout, r"^spillway \d+\.\d+\.\d+\n$")

    def test_wrong_usage_exits_with_2(self):
        for command in ([], ["nonsense"], ["codec", "--bits", "33"], ["bench", "codec", "--part", "x"],
                        ["bench", "codec", "--device", "cuda:x"]):
            self.assertEqual(run(*command).returncode, 2, command)

    def test_wrong_values_exit_with_2_and_name_their_option(self):
        with tempfile.TemporaryDirectory() as folder:
            relay, pair = pathlib.Path(folder) / "relay.scn", pathlib.Path(folder) / "pair.goal"
            relay.write_text("topology one-switch hosts=2 rate=1gbit\n" + Switch.RELAYS.format(0, 0))
            pair.write_text("num_ranks 2\nrank 0 {\nl1: send 64b to 1 tag 0\n}\nrank 1 {\nl1: recv 64b from 0 tag 0\n}\n")
            for command, option, words in self.wrong_values(relay, pair):
                with self.subTest(command=command):
                    result = run(*command)
                    self.assertEqual(result.returncode, 2, result.stderr)
                    self.assertIn(f"{option}: ", result.stderr)
                    self.assertIn(words, result.stderr)

    @staticmethod
    def wrong_values(relay, pair):
        """(command, the option that its message names, further words)"""
        yield from ((["codec", "--mtu", "100"], "--mtu", "576 to 9000"),
                    (["sim", "drill", "--phases", "--seed", "100000"], "--seed", "from 1 to 264"),
                    (["bench", "transport", "--garbage", "x"], "--garbage", "not a rate"),
                    (["bench", "incast", "--job", "x"], "--job", "not key=value"),
                    (["bench", "incast", "--protocols", "x"], "--protocols", "available are"),
                    (["sim", "run", SCENARIOS / "incast_trim.scn", "--set", "topology.rate=1bit"], "--set", "1kbit to 10tbit"))
        for option, value, words in (("--rate", "1tbit", "at most 40 Gb/s"), ("--rate", "1bit", "1kbit to 10tbit"),
                                     ("--rate", "fast", "not a rate"), ("--mtu", "500", "576 to 9216"),
                                     ("--tcp", "nonsense", "available are"), ("--hosts", "1000", "1 to 256"),
                                     ("--delay", "x", "not a time"), ("--background", "x", "not key=value"),
                                     ("--set", "topology.rate=1tbit", "at most 40 Gb/s")):
            yield ["lab", "run", option, value, "--", "true"], option, words
        for option, value, words in (("--set", "topology.rate=1bit", "1kbit to 10tbit"), ("--slots", "x", "1 to 1048576"),
                                     ("--level", "x", "0 to 1"), ("--job-limit", "x", "JOB=SLOTS"),
                                     ("--job-limit", "7=9999", "may hold")):
            yield ["switch", "run", relay, option, value], option, words
            yield ["switch", "attach", "--config", relay, option, value], option, words
        for option, value, words in (("--set", "topology.hosts=4", "64 ranks need as many hosts"),
                                     ("--rate", "1bit", "1kbit to 10tbit")):
            yield ["emulate", "simulate", "--data", "64", "--leaf-hosts", "64", option, value], option, words
        for option, value, words in (("--trace", pair, "give --world 2"), ("--slow", "99=2", "ranks are 0 to 3"),
                                     ("--slow", "0=2", "no virtual rank"), ("--real", "4", "0 to 3")):
            real = () if option == "--real" else ("--real", "0")
            yield ["emulate", "stage", "--world", "4", *real, option, value, "--", "true"], option, words


class Codec(unittest.TestCase):
    def test_prints_a_table_and_writes_a_page(self):
        with tempfile.TemporaryDirectory() as folder:
            result = run("codec", "--gradient", GRADIENT, "--out", "page", cwd=folder)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("cut to (bytes)", result.stdout)
            page = (pathlib.Path(folder) / "page" / "codec.html").read_text()
            self.assertIn("entropy-8", result.stdout)
            self.assertIn("No sketch", result.stdout)
            # Cuts and drops; then planes, levels, entropy, fp16 and top-k.
            self.assertEqual(page.count("<polyline"), 5 + 5)
            self.assertEqual((pathlib.Path(folder) / "page" / "rates.svg").read_text().count("<polyline"), 5)
            self.assertNotIn("http-equiv", page)
            self.assertNotIn("src=", page)  # opens without network
            self.assertEqual(result.stderr, "")  # no progress bar without a terminal

    def test_json_shows_that_cutting_beats_dropping(self):
        with tempfile.TemporaryDirectory() as folder:
            result = run("codec", "--gradient", GRADIENT, "--json", cwd=folder)
            compared = json.loads(result.stdout)
        cuts = {cut["cut_bytes"]: cut for cut in compared["cuts"]}
        self.assertLess(cuts[206]["nmse_tenth_cut"], 0.5 * cuts[206]["nmse_tenth_dropped"])
        errors = [cut["nmse_all_cut"] for cut in compared["cuts"]]
        self.assertEqual(errors, sorted(errors))  # smaller cuts, larger error

    def test_json_has_bits_and_error_of_every_code(self):
        with tempfile.TemporaryDirectory() as folder:
            before = GRADIENT.with_name("conv_step1.f32")
            result = run("codec", "--gradient", GRADIENT, "--previous", before, "--json", cwd=folder)
            self.assertEqual(result.returncode, 0, result.stderr)
            rates = json.loads(result.stdout)["rates"]
        families = {rate["family"] for rate in rates}
        self.assertTrue({"exact", "fp16", "planes", "levels", "blocks", "entropy", "top-k"} <= families)
        for family in families:
            points = [(rate["bits_per_value"], rate["nmse"]) for rate in rates if rate["family"] == family]
            self.assertEqual(points, sorted(points, key=lambda point: (point[0], -point[1])), family)
            self.assertEqual([error for _, error in points], sorted((error for _, error in points), reverse=True), family)
        for rate in rates:
            self.assertGreater(min(rate["encode_gb_per_s"], rate["decode_gb_per_s"]), 0)
            if rate["family"] == "entropy":
                self.assertLess(rate["bits_per_value"], int(rate["codec"].split("-")[1]))
                self.assertIn(rate["table"], ("own, sent along", "last step's"))

    def test_bad_input_gets_a_sentence_and_exit_code_1(self):
        with tempfile.TemporaryDirectory() as folder:
            odd = pathlib.Path(folder) / "odd.f32"
            odd.write_bytes(b"12345")
            for arguments, sentence in (
                (["--gradient", "missing.f32"], "cannot open"),
                (["--gradient", str(odd)], "whole number of 4-byte floats"),
                (["--previous", str(GRADIENT)], "--previous a step of the same tensor"),
                (["--gradient", str(GRADIENT), "--out", "/proc/nowhere"], "--out"),
            ):
                result = run("codec", *arguments, cwd=folder)
                self.assertEqual(result.returncode, 1, arguments)
                self.assertIn(sentence, result.stderr)

    def test_a_gradient_with_a_nan_is_reported_not_hidden(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "nan.f32"
            path.write_bytes(struct.pack("<3f", 1.0, float("nan"), 2.0))
            result = run("codec", "--gradient", path, "--out", folder)
            self.assertEqual(result.returncode, 1)
            self.assertIn("not finite", result.stderr)


class Switch(unittest.TestCase):
    RELAYS = "port host=host0 listen=127.0.0.1:{0} deliver=127.0.0.1:1\nport host=host1 listen=127.0.0.1:{1} deliver=127.0.0.1:2\n"

    def run_config(self, text, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder) / "switch.scn"
            config.write_text("topology one-switch hosts=2 rate=1gbit\n" + text)
            return run("switch", "run", config, *arguments)

    def start_config(self, text, *arguments):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        config = pathlib.Path(folder.name) / "switch.scn"
        config.write_text("topology one-switch hosts=2 rate=1gbit\n" + text)
        return Started([TOOL, "switch", "run", config, *arguments], test=self)

    def test_runs_for_a_time_and_tells_what_it_did(self):
        relays = self.RELAYS.format(0, 0)
        table = self.run_config(relays, "--for", "50ms")
        self.assertEqual(table.returncode, 0, table.stderr)
        self.assertIn("switch0->host1", table.stdout)
        result = json.loads(self.run_config(relays, "--for", "50ms", "--json").stdout)
        self.assertEqual({port["port"]: port["sent_packets"] for port in result["ports"]},
                         {"switch0->host0": 0, "switch0->host1": 0})

    def test_tells_again_and_again_what_it_does(self):
        """Repeats until the tenant's packets appear; no other host sends to host 0."""
        tenant = "tenant from=host0 to=host1 rate=100mbit off=0\n"
        process = self.start_config(self.RELAYS.format(0, 0) + tenant, "--json", "--every", "20ms")
        sent = {"switch0->host1": 0}
        while sent["switch0->host1"] == 0:
            sent = {port["port"]: port["sent_packets"] for port in json.loads(process.line())["ports"]}
        self.assertEqual((len(sent), sent["switch0->host0"]), (2, 0))
        self.assertEqual(len(json.loads(process.line())["ports"]), 2)

    def test_ends_with_sigterm_and_serves_metrics_meanwhile(self):
        process = self.start_config(self.RELAYS.format(0, 0), "--json", "--metrics", "127.0.0.1:0")
        url = process.line(pipe=process.stderr).split()[-1]
        with urllib.request.urlopen(url, timeout=patience()) as answer:
            text = answer.read().decode()
        process.terminate()
        output, _ = process.finish()
        self.assertEqual(process.returncode, 0)
        self.assertIn('spillway_switch_packets_total{port="switch0->host1",class="7",verdict="trimmed"} 0', text)
        self.assertEqual(json.loads(output)["frames_in"], 0)

    def test_what_cannot_run_gets_a_sentence_and_exit_code_1(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            for text, arguments, sentence in (
                ("", [], "host0 has no port"),
                ("port host=host0 speed=3\n", [], "line 2"),
                ("port host=host0 interface=nowhere0\nport host=host1 interface=nowhere1\n", [], "no interface nowhere0"),
                (self.RELAYS.format(port, 0), [], "another process has the port"),
                (self.RELAYS.format(0, 0) + "tenant from=host0 to=host1 rate=0\n", [], "rate=0"),
            ):
                result = self.run_config(text, *arguments)
                self.assertEqual(result.returncode, 1, (text, result.stderr))
                self.assertIn(sentence, result.stderr)
                self.assertEqual(result.stdout, "")
        for arguments in (["--for", "soon"], ["--metrics", "nonsense"], ["--set", "nonsense"]):
            result = self.run_config(self.RELAYS.format(0, 0), *arguments)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(arguments[1], result.stderr)
        self.assertEqual(run("switch", "run", "no-such-file.scn").returncode, 1)


class Sim(unittest.TestCase):
    def test_all_reduces_by_every_plan(self):
        command = ["sim", "allreduce", "--preset", "oversubscribed", "--sizes", "256k", "--count", "2"]
        table = run(*command)
        self.assertEqual(table.returncode, 0, table.stderr)
        self.assertIn("x bound", table.stdout)
        rows = {row["asked"]: row for row in json.loads(run(*command, "--json").stdout)["rows"]}
        self.assertEqual(list(rows), ["auto", "direct", "hierarchical", "ring", "tree"])
        self.assertEqual(rows["hierarchical"]["algorithm"], "hierarchical")
        self.assertLess(rows["hierarchical"]["time_us"], rows["direct"]["time_us"])  # uplinks are thin there
        for wrong in (["--preset", "none"], ["--preset", "clean", "--ranks", "9"], ["--sizes", "x"], []):
            self.assertNotEqual(run("sim", "allreduce", *wrong).returncode, 0)

    def test_a_scenario_gives_a_table_json_and_a_trace(self):
        scenario = SCENARIOS / "incast_trim.scn"
        table = run("sim", "run", scenario)
        self.assertEqual(table.returncode, 0, table.stderr)
        self.assertIn("p99", table.stdout)
        with tempfile.TemporaryDirectory() as folder:
            result = run("sim", "run", scenario, "--json", "--trace", "trace.json", cwd=folder)
            trace = json.loads((pathlib.Path(folder) / "trace.json").read_text())
        job = json.loads(result.stdout)["jobs"][0]
        self.assertEqual(job["ended"], job["flows"])
        flows = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        self.assertEqual(len(flows), job["flows"])

    def test_the_same_seed_gives_the_same_run(self):
        command = ["sim", "run", SCENARIOS / "permutation.scn", "--json", "--seed"]
        self.assertEqual(run(*command, "5").stdout, run(*command, "5").stdout)
        self.assertNotEqual(run(*command, "5").stdout, run(*command, "6").stdout)

    def test_bad_scenarios_name_the_line(self):
        with tempfile.TemporaryDirectory() as folder:
            bad = pathlib.Path(folder) / "bad.scn"
            bad.write_text("seed 1\ntopology one-switch hosts=4 speed=3\n")
            result = run("sim", "run", bad)
        self.assertEqual(result.returncode, 1)
        self.assertIn("line 2", result.stderr)
        self.assertIn("speed", result.stderr)
        self.assertEqual(run("sim", "run", "no-such-file.scn").returncode, 1)

    def test_an_override_changes_one_line(self):
        result = run("sim", "run", SCENARIOS / "incast_trim.scn", "--json", "--set", "job.protocol=dctcp", "--set", "switch.mode=ecn", "--set", "switch.ecn=30k")
        self.assertEqual(json.loads(result.stdout)["jobs"][0]["protocol"], "dctcp")

    def test_numbers_out_of_range_are_named_with_their_range(self):
        for verb, option, value, most in (
            ("soak", "--seeds", "99999999999999999999", "1 to 1000000000"),
            ("soak", "--seeds", "0", "1 to 1000000000"),
            ("drill", "--seeds", "-1", "1 to 1000000000"),
            ("soak", "--seed", "99999999999999999999", "0 to 18446744073709551615"),
            ("drill", "--first", "1.5", "0 to 18446744073709551615"),
        ):
            result = run("sim", verb, option, value)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(f"{option}: '{value}' is not a whole number from {most}", result.stderr)

    def test_soak_replays_a_seed(self):
        first = run("sim", "soak", "--seeds", "3", "--json")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn("worlds", json.loads(first.stdout))

    def test_drills_of_both_kinds_hold(self):
        random = run("sim", "drill", "--seeds", "50", "--json")
        self.assertEqual(random.returncode, 0, random.stderr)
        self.assertGreater(json.loads(random.stdout)["decisions"], 20)
        one = run("sim", "drill", "--phases", "--seed", "17")
        self.assertEqual(one.returncode, 0, one.stderr)
        self.assertIn("8 ranks", one.stderr)


class Bench(unittest.TestCase):
    def test_simulator_and_transport_report_packets_per_second(self):
        sim = json.loads(run("bench", "sim", "--hosts", "16", "32", "--megabytes", "1", "--repetitions", "1", "--json").stdout)
        self.assertEqual([row["hosts"] for row in sim["rows"]], [16, 32])
        self.assertGreater(sim["rows"][0]["delivered_data_packets"], 16 * 240)
        core = json.loads(run("bench", "transport", "--core", "--quick", "--json").stdout)
        self.assertEqual(len(core["rows"]), 3)
        self.assertGreater(min(row["packets_per_s"] for row in core["rows"]), 0)

    def test_error_figures_meet_their_bars(self):
        result = run("bench", "codec", "--part", "error", "--quick", "--json", "--gradients", GRADIENT.parent)
        self.assertEqual(result.returncode, 0, result.stderr)
        error = json.loads(result.stdout)["error"]
        samples = {row["sample"] for row in error["by_planes"]}
        self.assertTrue({"gaussian", "lognormal", "sparse-1%", "conv_step300", "fc_step1"} <= samples)
        for row in error["by_planes"]:
            if row["planes"] <= 4:
                self.assertLess(row["of_eden"], 1.10, row)
        for row in error["paper_encodings"]:
            if row["encoding"] == "rht":
                self.assertAlmostEqual(row["nmse"] / (0.5708 * row["trimmed_fraction"]), 1.0, delta=0.05)

    def test_speed_figures_are_ratios_to_memcpy(self):
        result = run("bench", "codec", "--part", "speed", "--quick", "--json")
        speed = json.loads(result.stdout)["speed"]
        self.assertGreater(speed["memcpy_gb_per_s"], 0)
        targets = {row["target"] for row in speed["codecs"]}
        self.assertTrue({"scalar", "reference"} <= targets)
        for row in speed["codecs"]:
            self.assertAlmostEqual(
                row["encode_of_memcpy"], row["encode_gb_per_s"] / speed["memcpy_gb_per_s"], places=6
            )

    def test_a_gpu_is_measured_beside_a_copy_or_its_absence_gets_a_sentence(self):
        result = run("bench", "codec", "--device", "cuda", "--quick", "--json")
        if result.returncode != 0:
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertRegex(result.stderr, r"unavailable: .+")
            return
        told = json.loads(result.stdout)
        self.assertEqual(told["speed"][0]["what"], "copy")
        for row in told["speed"]:
            self.assertGreater(row["over_copy"], 0.1, row)

    def test_lossless_codes_stay_close_to_the_entropy(self):
        result = run("bench", "codec", "--part", "entropy", "--quick", "--json", "--gradients", GRADIENT.parent)
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = json.loads(result.stdout)["rows"]
        coders = {row["coder"] for row in rows}
        self.assertTrue({"spillway", "spillway, counting", "asc", "atalanta", "adaptive", "packed"} <= coders)
        self.assertTrue({"normal, sigma 4", "conv_step300"} <= {row["sample"] for row in rows})
        for row in rows:
            self.assertGreater(min(row["encode_gb_per_s"], row["decode_gb_per_s"]), 0, row)
            if row["coder"] == "spillway" and row["sample"].startswith("normal"):
                self.assertLess(row["bits_per_value"], 1.01 * row["entropy_bits"], row)
        floats = json.loads(result.stdout)["floats"]
        self.assertTrue({("normal", "float32"), ("fc_step300", "bfloat16")} <= {(row["sample"], row["type"]) for row in floats})
        for row in floats:
            if row["coder"] == "spillway":
                self.assertLess(row["bits_per_value"], {"float32": 28.5, "bfloat16": 12.5}[row["type"]], row)

    def test_checks_are_ratios_to_crc32c(self):
        result = run("bench", "codec", "--part", "checks", "--bytes", "160", "1452", "--rounds", "1", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = json.loads(result.stdout)["rows"]
        for size in (160, 1452):
            of_size = {row["check"]: row for row in rows if row["packet_bytes"] == size}
            self.assertEqual(len(of_size), 10)
            for row in of_size.values():
                ratio = row["ns_per_packet"] / of_size["crc32c"]["ns_per_packet"]
                self.assertAlmostEqual(row["of_crc32c"], ratio, places=6)
        self.assertEqual(run("bench", "codec", "--part", "checks", "--bytes", "100").returncode, 2)


if __name__ == "__main__":
    unittest.main()
