#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The experiments: the claims of every run.py, the channel's effect on gradients, and a few steps of training.

    tests/experiments/experiments_test.py LIBRARY [unittest's arguments]

The tool's measurements are synthetic here: the tests check how run.py evaluates them. Skips without torch or
Fashion-MNIST: exit code 77.
"""
import contextlib
import importlib.util
import io
import json
import pathlib
import re
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.processes import run

EXPERIMENTS = pathlib.Path(__file__).resolve().parents[2] / "experiments"
LIBRARY = pathlib.Path(sys.argv.pop(1)).resolve()
SKIPPED = 77


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


# Prints every script's help from one process that has loaded only torch: importing that takes seconds.
PRINT_HELP = """
import os, runpy, sys
import torch
for script in sys.argv[1:]:
    print("help of", script, flush=True)
    if os.fork() == 0:
        sys.argv = [script, "--help"]
        sys.path[0] = os.path.dirname(script)
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as end:
            sys.stdout.flush()
            os._exit(end.code or 0)  # torch's end takes as long as its beginning
        os._exit(1)
    if os.wait()[1] != 0:
        sys.exit(f"{script} --help failed")
"""


def load(experiment):
    spec = importlib.util.spec_from_file_location(experiment, EXPERIMENTS / experiment / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NAMES = sorted(path.parent.name for path in EXPERIMENTS.glob("*/run.py"))

try:
    MODULES = {name: load(name) for name in NAMES}
except ImportError as error:
    skip(error)

import torch
from common import channel, report, training

trim_accuracy, loss_tolerance, oscar_sw = MODULES["trim_accuracy"], MODULES["loss_tolerance"], MODULES["oscar_sw"]

if not training.example.FASHION_MNIST.is_dir():
    skip("dataset-fashion-mnist is not installed; scripts/packages-run.txt names it")

CHANNEL = channel.Channel(LIBRARY)
LENGTH = 40_000


def gaussian(seed, length=LENGTH):
    return torch.randn(length, generator=torch.Generator().manual_seed(seed))


def gain(estimate, truth):
    """1 for an estimate that is right on average."""
    return float(estimate @ truth / (truth @ truth))


# ---- Options and output of every run.py ----

def run_main(experiment, *arguments):
    """Its output, and its rows."""
    said = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(said):
        file = pathlib.Path(folder) / "claims.json"
        with mock.patch.object(sys, "argv", ["run.py", *arguments, "--json", str(file)]):
            experiment.main()
        return said.getvalue(), json.loads(file.read_text())


def holds(ours, bar):
    """Evaluates the bar's text."""
    if bar is None:
        return None
    for pattern, is_met in ((r"at most (\S+)", lambda limit: ours <= limit),
                            (r"at least (\S+)", lambda limit: ours >= limit),
                            (r"(\S+) to (\S+)", lambda least, most: least <= ours <= most)):
        if match := re.fullmatch(pattern, bar):
            return ours is not None and is_met(*map(float, match.groups()))
    raise AssertionError(f"no bar: {bar}")


class Tool:
    """Replaces the binary: answers in its formats, with Spillway `ours` times as good as its rivals."""

    def __init__(self, ours):
        self._ours = ours
        self.commands = []

    def __call__(self, command, _tries=1):
        self.commands.append(command)
        words = [word for word in command[1:] if not word.startswith("-")]
        if words[:2] == ["bench", "incast"]:
            return self.incast(command)
        if words[:2] == ["sim", "run"]:
            return self.simulation("job.protocol=dctcp" in command)
        if words[:2] == ["sim", "jobs"]:
            return self.training_jobs(command)
        if words[:2] == ["lab", "compare"]:
            return self.comparison(command)
        if "prism/worker.py" in " ".join(command) or "calibrate" in words:
            return self.staging(command)
        if "emulate" in words or any(word.startswith("SPILLWAY_EXECUTION_TRACE=") for word in words):
            return self.emulation(words)
        if "overlap/computing.py" in " ".join(command):
            return json.dumps({"step_ms": 100, "parameters": 2_000_000})
        if "oscar_hw/worker.py" in " ".join(command):
            return self.coded_training(command)
        if "sums.py" in " ".join(command):
            return self.sums(command)
        if "--evaluate-every" in command:
            return self.lab_training(command)
        if "--hook" in command:
            return self.training(command)
        if "-J" in command:
            return self.all_reduce(command)
        return self.late_ranks(float(command[-3]), int(command[-2]))

    def incast(self, command):
        rounds = int(command[command.index("--rounds") + 1])
        times = [{"p50_ms": 100 * factor, "p99_ms": 110 * factor, "max_ms": 120 * factor}
                 for factor in (1 / self._ours, 1, 1)]
        times[0].update(messages=3 * rounds, packets=1000, trimmed=100, missing=5, beyond_bound=0 if self._ours >= 1 else 2)
        return json.dumps({"protocols": times, "ideal_ms": 96, "simulated": {"p50_ms": 99 / self._ours}})

    def simulation(self, is_rival):
        times = dict.fromkeys(("mean_us", "p50_us", "p99_us", "max_us"), 1000 * (1 if is_rival else 1 / self._ours))
        job = {"completion": times, "makespan_us": 3000, "timeouts": 0, "slowdown": 1.5, "sent": 1000, "missing": 0,
               "resent": 8, "trimmed": 0, "arrived_marked": 3,
               "by_priority": [{"priority": priority, "completion": times} for priority in (0, 3)]}
        return json.dumps({"finished": True, "jobs": [job]})

    def training_jobs(self, command):
        """Policies differ if slots are scarce."""
        is_rival = "aggregate.policy=preemptive" not in command and "aggregate.slots=8192" not in command
        jobs = [{"name": name, "end": "done", "failure": "", "completion_us": 1000 * (self._ours if is_rival else 1),
                 "flushes_sent": 3, "sums_repeated": 2} for name in ("vgg1", "resnet1")]
        packets = dict.fromkeys(("claims", "adds", "emits", "evictions", "expired", "collisions", "late", "overlaps"), 9)
        return json.dumps({"jobs": jobs, "adders": [{"packets": packets}]})

    def comparison(self, command):
        transports = command[command.index("--transports") + 1].split(",")
        folder = pathlib.Path(command[command.index("--out") + 1])
        (folder / "log").write_text(json.dumps({"event": "end", "parameters": 2_000_000}))
        runs = [{"transport": name, "log": str(folder / "log"),
                 "metrics": {"step_p50_ms": 100 / factor, "step_p99_ms": 120 / factor, "step_first_ms": 300,
                             "seconds_to_target": 60 / factor, "final_accuracy": 0.8, "link_use": 0.9,
                             "trimmed_packets": 3, "lost_packets": 1}}
                for name in transports for factor in [1 if name.startswith("tcp") else self._ours]]
        (folder / "report.json").write_text(json.dumps({"runs": runs, "target_accuracy": 0.8, "notes": ["It was late."]}))
        return ""

    def training(self, command):
        is_rival = "SPILLWAY_CARRIER=tcp" in command
        step_ms = 100 if is_rival else 100 / self._ours
        pathlib.Path(command[command.index("--log") + 1]).write_text(json.dumps({
            "step_ms": step_ms, "p50_ms": step_ms, "p99_ms": step_ms, "accuracy": 0.8 if is_rival or self._ours >= 1 else 0.7,
            "packets": 1000, "repeated": 3, "trimmed": 0, "lost": 5}))
        return json.dumps({"fabric": {"ports": [{"trimmed_by_importance": [1] * 8, "dropped_by_importance": [9, 9] + [0] * 6},
                                                {"trimmed_by_importance": [0] * 8, "dropped_by_importance": [2] * 8}]}})

    def lab_training(self, command):
        """For experiments/thc: predicted scales, switches and all of ours are each `ours` times as good."""
        factor = 1 if command[command.index("--hook") + 1] == "fp32" else self._ours
        factor *= self._ours if "predicted" in " ".join(command) else 1
        accuracies = (0.7, 0.8 if self._ours >= 1 or factor == 1 else 0.75)
        steps = [{"event": "step", "step": step, "step_ms": 100 / factor} for step in range(1, 17)]
        evaluations = [{"event": "evaluation", "step": 8 * at, "accuracy": found} for at, found in enumerate(accuracies, 1)]
        pathlib.Path(command[command.index("--log") + 1]).write_text(
            "\n".join(json.dumps(event) for event in [*steps, *evaluations]))
        return json.dumps({**self.lab(), "fabric": {"ports": [], "adders": []}})

    def sums(self, command):
        """The load of an owner's link; a fifth too high if ours is worse."""
        hosts, folder = (command[command.index(name) + 1] for name in ("--hosts", "--folder"))
        others, servers = int(hosts) - 1, command[command.index("--servers") + 1] != "0"
        own = (1 if "--aggregate" in command else others) * (1 if self._ours >= 1 or "--aggregate" not in command else 1.2)
        carried = 1_000_000 * (own + (0 if servers else others))
        for rank in range(int(hosts)):
            (pathlib.Path(folder) / str(rank)).write_text(str(int(carried)))
        return json.dumps({**self.lab(), "fabric": {"ports": [{"port": f"switch0->host{rank}", "sent_bytes": int(carried)}
                                                              for rank in range(int(hosts))]}})

    def coded_training(self, command):
        """One rank comes late to every all-reduce and is the last to end its step."""
        codec, steps, folder = command[-4], int(command[-2]), pathlib.Path(command[-1])
        factor = 1 if codec == "exact" else self._ours
        for rank in range(4):
            (folder / str(rank)).write_text(json.dumps({"all_reduce_ms": [100 / factor + rank] * steps,
                                                        "step_ms": [100 / factor + 10 - rank] * steps}))
        return ""

    def emulation(self, words):
        """For experiments/genie: a replay that takes 50 % longer if ours is worse."""
        if "simulate" in words:
            return json.dumps({"time_us": 1000})
        if "show" in words:
            return json.dumps({"span_us": 1e6})
        replays = json.dumps({"replays": [{"time_us": 1e6 if self._ours >= 1 else 1.5e6}]}, indent=2)
        return "\n".join(f"[0] {line}" for line in replays.splitlines()) if "emulate" in words else ""

    def staging(self, command):
        """For experiments/prism: two real ranks that take 50 % more time and memory if ours is worse."""
        if "--report" in command:
            pathlib.Path(command[command.index("--report") + 1]).write_text(json.dumps({"stage_mib": 20}))
        if "calibrate" in command:
            return ""
        is_staged = "stage" in command
        ranks = range(2 if is_staged else int(command[command.index("--hosts") + 1]))
        factor = 1.5 if is_staged and self._ours < 1 else 1
        steps = int(command[command.index("--steps") + 1])
        folder = next(pathlib.Path(command[at + 1]) for at, word in enumerate(command) if word.endswith("prism/worker.py"))
        for rank in ranks:
            (folder / f"{rank}.json").write_text(json.dumps({"step_ms": [100 * factor] * steps, "peak_kib": 200_000 * factor,
                                                             "init_s": 0.1, "bootstrap_s": 2.0}))
        return ""

    def lab(self):
        return {"dataplane": "bpf", "pace": {"kept_up": True}}

    def all_reduce(self, command):
        times = {"p50_us": 50_000, "p99_us": 60_000}
        ours = {key: value / self._ours for key, value in times.items()}
        found = {"in_place_per_iter": ours, "nmse": 0.01 / self._ours, "rivals": {"gloo": {"per_iter": times}}}
        pathlib.Path(command[command.index("-J") + 1]).write_text(json.dumps({"results": [found]}))
        return ""

    def late_ranks(self, least, pause):
        slow = 90 if pause == 0 else 250 if least == 0 or self._ours < 1 else 100
        return "\n".join(f"[{rank}] " + json.dumps({"rank": rank, "times": [80] * 90 + [slow] * 10, "late": [0] * 8,
                                                    "paused": []}) for rank in range(8))


class Contract(unittest.TestCase):
    # These use the tool; the others train.
    MEASURING = ("allreduce_lab", "auto", "equal_bits", "esa_jct", "genie", "incast_lab", "mlt_fct", "mlt_training", "overlap", "prism", "thc", "train_lab")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.controls = pathlib.Path(folder.name) / "congestion_controls"
        self.controls.write_text("cubic bbr\n")
        patch = mock.patch.object(MODULES["mlt_training"], "CONGESTION_CONTROLS", self.controls)
        patch.start()
        self.addCleanup(patch.stop)

    def rows(self, name, ours, *arguments):
        with mock.patch.object(report, "output_of", Tool(ours)):
            text, rows = run_main(MODULES[name], *arguments)
        self.check(rows, "--quick" in arguments)
        self.assertIn("## Claims", text)
        return rows

    def check(self, rows, is_quick):
        self.assertTrue(rows)
        self.assertEqual(len({row["claim"] for row in rows}), len(rows), "claims of the same name")
        for row in rows:
            self.assertEqual(set(row), {"claim", "paper", "ours", "bar", "holds", "quick"})
            self.assertIsInstance(row["claim"], str)
            self.assertIsInstance(row["paper"], (str, type(None)))
            self.assertIsInstance(row["ours"], (int, float))
            self.assertIs(row["holds"], holds(row["ours"], row["bar"]), row)
            self.assertIs(row["quick"], is_quick)

    def test_every_experiment_is_here(self):
        self.assertEqual(NAMES, sorted([*self.MEASURING, "asc", "fsdp", "loss_tolerance", "oscar_hw", "oscar_sw",
                                        "trainmover", "trim_accuracy"]))

    def test_help_names_what_every_run_takes(self):
        done = run([sys.executable, "-c", PRINT_HELP, *(EXPERIMENTS / name / "run.py" for name in NAMES)])
        self.assertEqual(done.returncode, 0, done.stderr)
        helps = done.stdout.split("help of ")[1:]
        self.assertEqual(len(helps), len(NAMES))
        for said in helps:
            self.assertIn("--quick", said)
            self.assertIn("--json FILE", said)

    def test_what_is_far_better_holds_and_what_is_worse_does_not(self):
        for name in self.MEASURING:
            better, worse = (self.rows(name, ours, "--quick") for ours in (40, 0.4))
            self.assertEqual([row["claim"] for row in better], [row["claim"] for row in worse])
            self.assertTrue(all(row["holds"] is not False for row in better), [row for row in better if not row["holds"]])
            failed = sum(row["holds"] is False for row in worse)
            self.assertGreaterEqual(failed, sum(row["bar"] is not None for row in worse) / 3, name)

    def test_codecs_in_the_lab_are_held_to_the_papers_figures(self):
        for ours, expected in ((40, True), (0.4, False)):
            rows = self.rows("oscar_hw", ours, "--part", "lab")
            self.assertEqual({row["holds"] for row in rows if row["bar"] is not None}, {expected})
            ratios = {row["claim"]: row["ours"] for row in rows}
            self.assertAlmostEqual(ratios["lab, words: all-reduce time, ring, exact over entropy"], ours)
            self.assertAlmostEqual(ratios["lab, mean of all: end to end, direct, exact over entropy"],
                                   110 / (100 / ours + 10))

    def test_means_of_ratios_are_held_to_what_papers_say(self):
        claims = report.Claims(quick=False)
        ratios = report.Ratios(claims)
        for where, ratio in (("here", 2), ("there", 8)):
            ratios.add(where, "bits", ratio)
        ratios.add_means("mean", {"bits": (4, "a paper")})
        self.assertEqual([(row["claim"], row["holds"]) for row in claims.rows],
                         [("here: bits", None), ("there: bits", None), ("mean: bits", True)])
        self.assertAlmostEqual(claims.rows[-1]["ours"], 4)

    def test_a_full_run_measures_more_and_says_that_it_is_one(self):
        for name, arguments in (("allreduce_lab", ()), ("equal_bits", ()), ("genie", ()), ("overlap", ()), ("prism", ()), ("incast_lab", ()), ("incast_lab", ("--kernel",)), ("mlt_fct", ()),
                                ("mlt_training", ("--part", "servers")), ("auto", ()), ("thc", ()),
                                ("train_lab", ("--part", "congestion"))):
            full, quick = self.rows(name, 2, *arguments), self.rows(name, 2, "--quick", *arguments)
            self.assertGreater(len(full), len(quick), name)

    def test_congestion_controls_that_the_kernel_does_not_name_are_left_out(self):
        self.controls.unlink()
        with mock.patch.object(report, "output_of", Tool(2)):
            text, rows = run_main(MODULES["mlt_training"], "--quick")
        self.assertIn("TCP cubic is left out: this kernel has no cubic (modprobe tcp_cubic)", text)
        self.check(rows, is_quick=True)
        self.assertFalse(any("TCP" in row["claim"] for row in rows))

    def test_what_was_dropped_is_counted_by_whether_it_was_expendable(self):
        with mock.patch.object(report, "output_of", Tool(2)):
            text, _ = run_main(MODULES["mlt_training"], "--quick")
        self.assertIn("| 8 | 26 / 8 |", text)  # of both ports

    def test_a_part_is_measured_alone(self):
        every, one = self.rows("allreduce_lab", 2, "--quick"), self.rows("allreduce_lab", 2, "--quick", "--part", "exact")
        self.assertEqual(one, [row for row in every if row["claim"].startswith("exact")])

    def test_sizes_follow_quick_unless_they_are_given(self):
        for arguments, rounds in (((), "40"), (("--quick",), "10"), (("--quick", "--rounds", "3"), "3")):
            tool = Tool(2)
            with mock.patch.object(report, "output_of", tool):
                run_main(MODULES["incast_lab"], *arguments)
            self.assertEqual({command[command.index("--rounds") + 1] for command in tool.commands}, {rounds})

    def test_bars_include_their_ends_and_what_is_no_number_does_not_hold(self):
        claims = report.Claims(quick=False)
        for ours, bar in ((1, report.at_most(1)), (1, report.at_least(1)), (1, report.Bar(0, 1)), (1.01, report.at_most(1)),
                          (0.99, report.at_least(1)), (-0.1, report.Bar(0, 1)), (float("nan"), report.at_most(1)),
                          (float("inf"), report.at_least(1)), (5, None)):
            claims.add("it is", ours, bar)
        self.assertEqual([row["holds"] for row in claims.rows], [True] * 3 + [False] * 5 + [None])
        self.assertEqual([row["ours"] for row in claims.rows[6:]], [None, None, 5])
        json.dumps(claims.rows, allow_nan=False)

    def test_a_command_that_fails_ends_the_run_and_is_shown(self):
        with self.assertRaisesRegex(SystemExit, "sh -c .*\nsaid why"):
            report.output_of(["sh", "-c", "echo said why >&2; exit 3"])

    def test_the_readme_names_every_experiment_and_no_other_command(self):
        text = (EXPERIMENTS / "README.md").read_text()
        named = set(re.findall(r"experiments/([a-z_]+)/run\.py", text))
        self.assertEqual(named, set(NAMES))
        for name, arguments in re.findall(r"experiments/([a-z_]+)/run\.py((?: --[\w-]+| \w+)*)", text):
            source = (EXPERIMENTS / name / "run.py").read_text() + (EXPERIMENTS / "common/report.py").read_text()
            for option in re.findall(r"--[\w-]+", arguments):
                self.assertIn(f'"{option}"', source, f"{name}{arguments}")


class Trainmover(unittest.TestCase):
    @staticmethod
    def trained(rank, epoch, change):
        steps = [[step, 10.0 + step, 10.5 + step, 1] for step in range(6)] if epoch == 1 else []
        return {"rank": rank, "changes": [change], "bytes": 10_000_000, "steps": [*steps, [6, 21.0, 21.6, 2]]}

    def outcome(self, trouble):
        stayed = {"interrupted": 20.1, "parked": 20.2, "decided": 20.3, "connected": 20.4, "state": 20.5, "stepped": 21.5}
        joined = {"interrupted": 0.0, "parked": 19.0, "decided": 20.35, "connected": 20.6, "state": 20.9, "stepped": 21.6}
        return MODULES["trainmover"].outcome_of([self.trained(0, 1, stayed), self.trained(1, 2, joined)], trouble, 20.0)

    def test_phases_add_up_to_the_downtime(self):
        for trouble, begin in (("kill", 20.0), ("move", 20.2)):
            made = self.outcome(trouble)
            self.assertAlmostEqual(made.downtime_s, 21.6 - begin)
            self.assertAlmostEqual(sum(made.phases.values()), made.downtime_s)
            self.assertTrue(all(phase >= 0 for phase in made.phases.values()), made.phases)

    def test_steps_are_those_of_ranks_that_stayed_and_of_the_one_that_joined(self):
        made = self.outcome("kill")
        self.assertAlmostEqual(made.step_s, 0.5)
        self.assertAlmostEqual(made.joiner_step_s, 0.6)


class Trimming(unittest.TestCase):
    def error(self, code, share, length=4 * 32768):
        gradient = gaussian(1, length)
        estimate, delivery = CHANNEL.trim(code, share, 7, gradient)
        self.assertGreater(delivery.packets, 100)
        return training.relative_error(estimate, gradient), delivery

    def test_untrimmed_values_come_back_to_the_precision_of_their_code(self):
        for code, precision in (("planes", 1e-8), ("sign-magnitude", 0.0), ("sq", 1e-12), ("sd", 1e-12), ("rht", 1e-12)):
            error, delivery = self.error(code, 0.0)
            self.assertLessEqual(error, precision, code)
            self.assertEqual((delivery.hit, delivery.bytes_arrived), (0, delivery.bytes_sent), code)

    def test_one_bit_heads_have_the_errors_of_the_literature(self):
        for code, expected in (("sign-magnitude", 0.404), ("sq", 5.28), ("sd", 2.08), ("rht", 0.571)):
            error, delivery = self.error(code, 1.0)
            self.assertAlmostEqual(error / expected, 1.0, delta=0.05, msg=code)
            self.assertEqual(delivery.hit, delivery.packets)
            self.assertAlmostEqual(delivery.bytes_arrived / delivery.packets, 87, delta=1)

    def test_spillways_heads_hold_more_than_one_plane(self):
        error, delivery = self.error("planes", 1.0)
        self.assertAlmostEqual(error, 0.46, delta=0.03)  # 1.24 planes: between 0.571 with one and 0.138 with two
        self.assertLessEqual(delivery.bytes_arrived / delivery.packets, 206)

    def test_the_share_that_is_asked_for_is_trimmed(self):
        for code in trim_accuracy.CODES:
            mean = trim_accuracy.TrimmedMean(CHANNEL, code, 0.25, 1)
            for step in range(10):
                mean(step, [gaussian(worker) for worker in range(4)])
            deviation = (0.25 * 0.75 / mean.delivery.packets) ** 0.5
            self.assertAlmostEqual(mean.delivery.hit / mean.delivery.packets, 0.25, delta=4 * deviation, msg=code)

    def test_what_makes_no_sense_is_refused(self):
        with self.assertRaisesRegex(ValueError, "sign-magnitude, sq, sd, rht"):
            CHANNEL.trim("huffman", 0.5, 1, gaussian(1))
        with self.assertRaisesRegex(ValueError, "from 0 to 1"):
            CHANNEL.trim("planes", 1.5, 1, gaussian(1))
        with self.assertRaisesRegex(SystemExit, "--target experiment_channel"):
            channel.Channel(pathlib.Path("/nonexistent.so"))


class Losing(unittest.TestCase):
    def mean_of_means(self, pattern, share, rescaled, seeds=60):
        """Averages over many seeds; four workers have the same gradient."""
        gradient, total, delivery = gaussian(1), torch.zeros(LENGTH), channel.Delivery()
        for seed in range(seeds):
            mean = loss_tolerance.LossyMean(CHANNEL, loss_tolerance.worker_shares(pattern, share), rescaled, seed)
            total += mean(0, [gradient] * 4)
            delivery = delivery.plus(mean.delivery)
        return total / seeds, gradient, delivery

    def test_rescaled_means_are_right_on_average_and_others_shrink_by_what_is_lost(self):
        for pattern in (loss_tolerance.EVEN, loss_tolerance.ONE):
            estimate, gradient, delivery = self.mean_of_means(pattern, 0.2, rescaled=True)
            self.assertAlmostEqual(gain(estimate, gradient), 1.0, delta=0.01, msg=pattern)
            self.assertAlmostEqual(delivery.hit / delivery.packets, 0.2, delta=0.02, msg=pattern)
            estimate, gradient, _ = self.mean_of_means(pattern, 0.2, rescaled=False)
            self.assertAlmostEqual(gain(estimate, gradient), 0.8, delta=0.02, msg=pattern)

    def test_a_worker_of_which_nothing_came_is_not_in_the_mean(self):
        gradients = [gaussian(worker) for worker in range(4)]
        shares = loss_tolerance.worker_shares(loss_tolerance.ONE, 0.30)
        self.assertEqual(shares, [1.0, 0.0, 0.0, 0.0])
        for rescaled, parts in ((True, 3), (False, 4)):
            mean = loss_tolerance.LossyMean(CHANNEL, shares, rescaled, seed=1)(0, gradients)
            self.assertLess(training.relative_error(mean, torch.stack(gradients[1:]).sum(0) / parts), 1e-8)

    def test_rows_are_reported_as_missing_only_where_nothing_came(self):
        estimate, has_come, delivery = CHANNEL.lose(0.95, 3, True, gaussian(1))
        self.assertTrue(0 < int(has_come.sum()) < LENGTH)
        self.assertEqual(int(torch.count_nonzero(estimate[~has_come])), 0)
        self.assertGreater(int(torch.count_nonzero(estimate[has_come])), int(has_come.sum()) // 2)
        self.assertLess(delivery.bytes_arrived, delivery.bytes_sent)


class Sketches(unittest.TestCase):
    LENGTH, RANKS = 20_000, 4

    def parts(self, step):
        """Most nonzero values stay in their places."""
        generator = torch.Generator().manual_seed(step)
        values = torch.randint(-100, 101, (self.RANKS, self.LENGTH), generator=generator, dtype=torch.int32)
        is_there = torch.arange(self.LENGTH) % 20 == 0
        return values * (is_there | (torch.rand(self.RANKS, self.LENGTH, generator=generator) < 0.002))

    def reducer(self, scheme, size):
        return oscar_sw.Reducer(oscar_sw.Library(LIBRARY), scheme, size, self.LENGTH, self.RANKS)

    def test_sums_are_exact_but_for_what_is_named(self):
        for scheme, size in (("predicted-last", 130), ("predicted-counter", 130), ("peeled", 150), ("union", 0), ("top-k", 300)):
            reducer = self.reducer(scheme, size)
            for step in range(4):
                total, is_used, found = reducer.reduce(step, self.parts(step))
                self.assertTrue(torch.equal(total.long(), (self.parts(step) * is_used).sum(0)), scheme)
                self.assertEqual(found.unused, int((~is_used).sum()), scheme)
                self.assertGreater(found.bits(), 0)

    def test_a_support_that_stays_is_predicted(self):
        ours, sketch = self.reducer("predicted-counter", 130), self.reducer("peeled", 130)
        for step in range(4):
            (_, _, mine), (_, _, plain) = (reducer.reduce(step, self.parts(step)) for reducer in (ours, sketch))
        self.assertLess(mine.misses, mine.nonzero / 4)
        self.assertLess(mine.bits(), plain.bits())

    def test_what_makes_no_sense_is_refused(self):
        with self.assertRaisesRegex(ValueError, "there are predicted-last"):
            self.reducer("huffman", 1)
        with self.assertRaisesRegex(ValueError, "130 to 1000 cells"):
            self.reducer("predicted-last", 100)

    def test_a_run_of_few_steps_says_everything(self):
        with tempfile.TemporaryDirectory() as folder:
            tables = pathlib.Path(folder) / "result.md"
            _, rows = run_main(oscar_sw, "--library", str(LIBRARY), "--steps", "3", "--seeds", "1", "--tasks", "clicks", "--jobs",
                               "1", "--out", str(tables))
            Contract.check(self, rows, is_quick=False)
            for setting in (*oscar_sw.FIRST, *oscar_sw.EQUAL):
                self.assertIn(f"| {setting.name} |", tables.read_text())
        points = {row["claim"]: row["ours"] for row in rows}
        self.assertTrue(0 <= points["clicks: misses, of the values that are not zero"] <= 1)


class EntropyNumbers(unittest.TestCase):
    RANKS, LENGTH = 4, 30_000

    def setUp(self):
        self.native = sys.modules["asc.native"]
        self.library = self.native.Library(LIBRARY)

    def gradients(self, seed):
        return torch.stack([gaussian(seed * 10 + rank, self.LENGTH) for rank in range(self.RANKS)])

    def test_hops_of_learned_coders_are_near_their_entropy(self):
        hops = self.native.Hops(self.library, self.RANKS, self.LENGTH)
        for seed in range(3):
            found = hops.step((8 * self.gradients(seed)).round())
        for asc, entropy in zip(found.bits["asc"], found.bits["entropy"]):
            self.assertLess(asc, 1.06 * entropy)
        self.assertGreater(found.bits["asc"][3], found.bits["asc"][0] + 0.9)  # sums of four need one more bit
        self.assertTrue(all(1 <= part < 1.3 for parts in found.imbalance.values() for part in parts), found.imbalance)
        self.assertTrue(all(part > 0 for part in found.seconds["asc"]), found.seconds)

    def test_planes_of_the_same_error_lie_between_two_precisions(self):
        asc, gradients = MODULES["asc"], self.gradients(1)
        errors = {planes: training.relative_error(
            self.native.Group(self.library, self.RANKS, 1e9).mean(self.native.Way("planes", planes), gradients).mean,
            gradients.mean(0)) for planes in (3, 4)}
        found = asc.planes_of_error(self.library, gradients, (errors[3] * errors[4]) ** 0.5)
        self.assertAlmostEqual(found.precision, 3.5, delta=0.05)  # every group draws its own rotations
        self.assertAlmostEqual(asc.planes_of_error(self.library, gradients, errors[4]).precision, 4, delta=0.05)
        self.assertEqual(asc.planes_of_error(self.library, gradients, 2.0).precision, 1)
        self.assertIsNone(asc.planes_of_error(self.library, gradients, 0.0))

    def test_rings_wait_for_the_slower_of_wire_and_core(self):
        asc = MODULES["asc"]
        self.assertAlmostEqual(asc.ring_bits([1, 2, 3, 4]), (1 + 2 + 3 + 3 * 4) / 6)
        self.assertAlmostEqual(asc.ring_seconds([1, 2, 3, 4], 4e9), 1 + 2 + 3 + 3 * 4)
        self.assertAlmostEqual(asc.ring_seconds([1, 2, 3, 4], 4e9, (1e-9, 1e-9)), 2 + 2 + 3 + 1 + 3 * 4)

    def test_groups_take_the_mean_and_say_what_it_took(self):
        gradients = self.gradients(1)
        bits = {}
        for way in (self.native.Way("fp32"), self.native.Way("entropy", 8), self.native.Way("entropy", 8, is_ring=True)):
            outcome = self.native.Group(self.library, self.RANKS, 1e9, "balanced").mean(way, gradients)
            self.assertLess(training.relative_error(outcome.mean, gradients.mean(0)), 1e-3)
            self.assertGreater(outcome.seconds, 0)
            bits[way] = outcome.bits
        self.assertGreater(min(bits.values()), 0)
        self.assertGreater(bits[self.native.Way("fp32")], 3 * bits[self.native.Way("entropy", 8)])
        with self.assertRaisesRegex(ValueError, "codes are fp32"):
            self.native.Group(self.library, self.RANKS, 1e9).mean(self.native.Way("zip"), gradients)

    def test_runs_of_few_steps_say_everything(self):
        arguments = ("--library", str(LIBRARY), "--tasks", "layers", "--ranks", "2", "--steps", "4", "--kept", "4")
        for name, part in (("asc", ()), ("oscar_hw", ("--part", "chunks"))):
            text, rows = run_main(MODULES[name], *arguments, *part)
            Contract.check(self, rows, is_quick=False)
            self.assertIn("layers, 2 ranks", text)


class Runs(unittest.TestCase):
    """Whole experiments with few steps."""

    def records(self, experiment, *shares):
        """Its records and tables. It prints nothing else: there is no terminal."""
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(said):
            tables, numbers = pathlib.Path(folder) / "result.md", pathlib.Path(folder) / "runs.json"
            text, rows = run_main(experiment, "--library", str(LIBRARY), "--steps", "5", "--test-images", "200", "--seeds",
                                  "1", "--shares", *shares, "--out", str(tables), "--runs", str(numbers))
            self.assertEqual(text + said.getvalue(), "")
            Contract.check(self, rows, is_quick=False)
            return [json.loads(line) for line in numbers.read_text().splitlines()], tables.read_text(), rows

    def test_training_with_planes_that_arrive_whole_is_training_without_them(self):
        records, tables, rows = self.records(trim_accuracy, "0", "50")
        self.assertEqual(len(records), 1 + 2 * len(trim_accuracy.CODES))
        baseline = records[0]
        self.assertEqual((baseline["code"], baseline["error"]), (None, 0.0))
        for record in records[1:]:
            if record["share"] == 0:
                self.assertLess(record["error"], 1e-8, record["code"])
                self.assertAlmostEqual(record["loss"], baseline["loss"], delta=1e-3, msg=record["code"])
                self.assertAlmostEqual(record["accuracy"], baseline["accuracy"], delta=1.0, msg=record["code"])
            else:
                self.assertTrue(0.3 < record["hit"] / record["packets"] < 0.7, record)
                self.assertGreater(record["error"], 0.01)
        for name in trim_accuracy.NAMES.values():
            self.assertIn(name.replace("none (baseline)", "Without any code"), tables)
        points = {row["claim"]: row["ours"] for row in rows}
        for record in records[1:]:
            claim = f"{trim_accuracy.NAMES[record['code']]}, {record['share']:g} % trimmed: points from the baseline"
            self.assertAlmostEqual(points[claim], record["accuracy"] - baseline["accuracy"])

    def test_training_goes_on_when_packets_are_lost(self):
        records, tables, rows = self.records(loss_tolerance, "30")
        self.assertEqual(len(records), 1 + 4)
        lost = {(record["pattern"], record["rescaled"]): record["hit"] / record["packets"] for record in records[1:]}
        for rescaled in (True, False):
            self.assertAlmostEqual(lost[loss_tolerance.EVEN, rescaled], 0.3, delta=0.05)
            self.assertEqual(lost[loss_tolerance.ONE, rescaled], 0.25)  # all of one worker's packets, and no others
        self.assertIn("| one worker | zero |", tables)
        self.assertEqual([row["claim"] for row in rows if row["bar"] is not None],
                         [f"30 % lost on {pattern}, rescaled: points from the baseline"
                          for pattern in ("all workers", "one worker")])

    def test_a_run_is_a_function_of_its_seed(self):
        data = training.example.fashion_mnist(None)
        schedule = training.Schedule(steps=3, test_images=100)
        first, again, other = (trim_accuracy.run_one(CHANNEL, data, schedule, "planes", 50.0, seed) for seed in (1, 1, 2))
        self.assertEqual(first, again)
        self.assertNotEqual(first["loss"], other["loss"])


if __name__ == "__main__":
    unittest.main()
