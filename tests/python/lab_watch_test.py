#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The module that `spillway lab compare` adds to its ranks' Python processes, with a fake torch.
tests/cli/compare_torch_test.py uses the real one.

    tests/python/lab_watch_test.py
"""
import json
import os
import pathlib
import sys
import tempfile
import textwrap
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from harness.processes import run

WATCH = ROOT / "python" / "spillway" / "lab"

# The parts of torch that are watched.
FAKE_TORCH = {
    "torch/__init__.py": """
        import contextlib
        from . import cuda, futures, optim
        __version__ = '1.13'
        no_grad = contextlib.nullcontext
        def is_grad_enabled(): return True
        class device:
            def __init__(self, type): self.type = type
        """,
    "torch/futures.py": """
        import concurrent.futures
        class Future(concurrent.futures.Future):
            def wait(self): return self.result()
        """,
    "torch/cuda.py": """
        def is_initialized(): return False
        def synchronize(device=None):
            if getattr(device, "type", "cuda") != "cuda":
                raise ValueError(f"Expected a cuda device, but got: {device.type}")
            print("synchronized", getattr(device, "type", device))
        """,
    "torch/optim/__init__.py": """
        from .optimizer import Optimizer
        class Sgd(Optimizer):
            def step(self, closure=None): return "stepped"
        class Momentum(Sgd):
            def step(self, closure=None): return super().step(closure)
        """,
    "torch/optim/optimizer.py": """
        class Optimizer:
            def __init__(self, parameters=()): pass
            def step(self): raise NotImplementedError
        """,
    "torch/distributed/__init__.py": """
        from .distributed_c10d import *
        def is_available(): return True
        def is_initialized(): return False
        """,
    "torch/distributed/distributed_c10d.py": """
        class Group:
            def __del__(self): print("destroyed")
        def init_process_group(backend, init_method=None, **named):
            global group
            group = Group()
            print("made", backend, init_method, named)
        def _get_default_group(): return group
        def destroy_process_group():
            global group
            group = None
        """,
    "torch/nn/parallel/distributed.py": """
        import types
        class DistributedDataParallel:
            process_group = "world"
            def __init__(self, find_unused_parameters=False, static_graph=False, on_cuda=False):
                self.find_unused_parameters, self.static_graph = find_unused_parameters, static_graph
                self.on_cuda = on_cuda
            def parameters(self):
                return [types.SimpleNamespace(is_cuda=self.on_cuda, requires_grad=True)]
            def register_comm_hook(self, state, hook):
                self.state, self.hook = state, hook
                print("hook", state, getattr(hook, "__name__", hook))
            def _register_builtin_comm_hook(self, kind): pass
            def forward(self, x): return x + 1
        """,
    "torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py": "fp16_compress_hook = 'fp16'\n",
    "torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py": """
        import threading, torch
        def PowerSGDState(group, start_powerSGD_iter): return f"{group} from {start_powerSGD_iter}"
        under_way = 0
        def powerSGD_hook(state, bucket):
            global under_way
            under_way += 1
            future = torch.futures.Future()
            def finish():
                global under_way
                print(bucket.number, under_way)
                under_way -= 1
                future.set_result(-bucket.number) if bucket.number else future.set_exception(ValueError("of the hook"))
            threading.Timer(0.01, finish).start()
            return future
        """,
}


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.events = self.folder / "events"
        for name, text in FAKE_TORCH.items():
            self.write(name, text)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))

    def run_script(self, script, **variables):
        environment = {**os.environ, "PYTHONPATH": f"{WATCH}:{self.folder}", "SPILLWAY_LAB_STEPS": str(self.events),
                       "RANK": "0", "SPILLWAY_LAB_BACKEND": "", "SPILLWAY_LAB_HOOK": "", **variables}
        done = run([sys.executable, "-c", textwrap.dedent(script)], env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def seen(self):
        return [json.loads(line) for line in self.events.read_text().splitlines()] if self.events.exists() else []


class BesideTheScript(Case):
    def test_torch_is_not_imported_and_nothing_is_left_on_the_path(self):
        done = self.run_script("import sys, json; print('torch' in sys.modules, json.dumps(sys.path))")
        imported, path = done.stdout.split(maxsplit=1)
        self.assertEqual(imported, "False")
        self.assertNotIn(str(WATCH), json.loads(path))
        self.assertIn(str(self.folder), json.loads(path))
        self.assertEqual(done.stderr, "")

    def test_the_sitecustomize_that_was_there_runs_and_keeps_its_name(self):
        self.write("sitecustomize.py", "mark = 'of the user'\n")
        done = self.run_script("import sitecustomize; print(sitecustomize.mark)")
        self.assertEqual(done.stdout, "of the user\n")

    def test_one_that_fails_does_so_as_without_us_and_the_script_is_watched(self):
        self.write("sitecustomize.py", "raise RuntimeError('of the user')\n")
        done = self.run_script("import torch; torch.optim.Sgd().step()")
        self.assertIn("RuntimeError: of the user", done.stderr)
        self.assertEqual(len(self.seen()), 1)

    def test_a_file_that_cannot_be_written_costs_the_script_nothing(self):
        done = self.run_script("import torch; s = torch.optim.Sgd(); s.step(); print(s.step())",
                               SPILLWAY_LAB_STEPS="/nowhere/x")
        self.assertEqual(done.stdout, "stepped\n")
        self.assertEqual(done.stderr.count("cannot write /nowhere/x"), 1)

    def test_events_go_through_no_link_and_are_their_owners_alone(self):
        victim = self.folder / "victim"
        victim.write_text("kept")
        self.events.symlink_to(victim)
        done = self.run_script("import torch; torch.optim.Sgd().step()")
        self.assertIn("cannot write", done.stderr)
        self.assertEqual(victim.read_text(), "kept")
        self.events.unlink()
        self.run_script("import torch; torch.optim.Sgd().step()")
        self.assertEqual(self.events.stat().st_mode & 0o777, 0o600)

    def test_a_hook_that_there_is_not_is_named(self):
        done = self.run_script("print('runs')", SPILLWAY_LAB_HOOK="zip")
        self.assertEqual(done.stdout, "runs\n")
        self.assertIn("SPILLWAY_LAB_HOOK is 'zip'; there are fp16, powersgd, flat", done.stderr)


class Steps(Case):
    def test_of_rank_0_are_written(self):
        script = "import torch\ns = torch.optim.Sgd()\nfor _ in range(4): s.step()"
        self.run_script(script, RANK="1")
        self.assertEqual(self.seen(), [])
        self.run_script(script)
        self.assertEqual([(event["event"], event["step"]) for event in self.seen()], [("step", n) for n in (1, 2, 3, 4)])
        self.assertNotIn("step_ms", self.seen()[0])  # its beginning is unknown
        self.assertTrue(all(event["step_ms"] >= 0 for event in self.seen()[1:]))

    def test_of_an_optimizer_that_calls_another_count_once(self):
        self.run_script("""
            import torch
            plain, momentum = torch.optim.Sgd(), torch.optim.Momentum()  # both classes are watched
            for _ in range(3): momentum.step()
            """)
        self.assertEqual(len(self.seen()), 3)

    def test_of_several_optimizers_are_rounds(self):
        self.run_script("""
            import torch
            first, second = torch.optim.Sgd(), torch.optim.Sgd()
            for _ in range(5): first.step(), second.step()
            """)
        self.assertEqual(len(self.seen()), 5)

    def test_of_one_optimizer_after_the_other_all_count(self):
        self.run_script("""
            import torch
            first, second = torch.optim.Sgd(), torch.optim.Sgd()
            for _ in range(5): first.step()
            for _ in range(5): second.step()
            """)
        self.assertEqual(len(self.seen()), 9)  # the second optimizer's first step might have been in the same round


class Overlapped(Case):
    """With a fake package."""

    def setUp(self):
        super().setUp()
        self.write("spillway/__init__.py", "")
        self.write("spillway/torch/__init__.py", "")
        self.write("spillway/torch/overlapped_model.py", """
            class OverlappedModel:
                def forward(self, x): return x + 1
            """)
        self.write("spillway/torch/overlapped_optimizer.py", """
            import torch
            class OverlappedOptimizer(torch.optim.Optimizer):
                _is_updating = False
                def step(self): pass
                def update(self):
                    self._is_updating = True
                    super().step()
                    self._is_updating = False
            """)

    def test_steps_count_once_and_begin_with_the_forward_pass(self):
        self.run_script("""
            import time, torch
            from spillway.torch import overlapped_model, overlapped_optimizer
            model, optimizer = overlapped_model.OverlappedModel(), torch.optim.Sgd()
            optimizer.__class__ = type("Sgd", (overlapped_optimizer.OverlappedOptimizer, torch.optim.Sgd), {})
            for _ in range(3):
                assert model.forward(1) == 2
                optimizer.step()
                optimizer.update()
            """)
        seen = self.seen()
        self.assertEqual([event["step"] for event in seen if event["event"] == "step"], [1, 2, 3])
        self.assertTrue(all("step_ms" in event for event in seen if event["event"] == "step"), seen)


class StepTimes(unittest.TestCase):
    """Uses a fake clock."""

    def setUp(self):
        self.events, self.now = [], 0.0
        self.torch = types.SimpleNamespace(is_grad_enabled=lambda: True,
                                           cuda=types.SimpleNamespace(is_initialized=lambda: False))
        for patch in (mock.patch.object(sys, "path", [str(WATCH), *sys.path]),
                      mock.patch.dict(sys.modules, {"torch": self.torch})):
            patch.start()
            self.addCleanup(patch.stop)
        import spillway_lab_watch
        self.steps = spillway_lab_watch.Steps(self, lambda: self.now)

    def write(self, event, **values):
        self.events.append(values)

    def step_at(self, begin, end):
        self.now = begin
        self.steps.note_forward()
        self.now = end
        self.steps.note_step(self)

    def times(self):
        return [event.get("step_ms") for event in self.events]

    def test_begin_with_the_forward_pass_so_that_evaluations_are_not_in_them(self):
        self.step_at(1, 1.5)
        self.step_at(2, 2.25)
        self.torch.is_grad_enabled = lambda: False
        self.now = 3
        self.steps.note_forward()  # an evaluation's
        self.torch.is_grad_enabled = lambda: True
        self.step_at(9, 9.125)
        self.assertEqual(self.times(), [500, 250, 125])

    def test_of_accumulated_gradients_begin_with_the_first_pass(self):
        self.now = 1
        self.steps.note_forward()
        self.step_at(2, 3)
        self.assertEqual(self.times(), [2000])

    def test_where_cuda_is_at_work_go_from_end_to_end(self):
        self.torch.cuda.is_initialized = lambda: True
        self.step_at(1, 1.5)
        self.step_at(2, 2.25)
        self.assertEqual(self.times(), [500, 750])


class Groups(Case):
    SCRIPT = "import torch.distributed as dist; dist.init_process_group('nccl', 'env://', pg_options=1)"

    def test_are_of_the_backend_that_the_lab_chose(self):
        done = self.run_script(self.SCRIPT, SPILLWAY_LAB_BACKEND="gloo")
        self.assertEqual(done.stdout.splitlines()[0], "made gloo env:// {}")
        self.assertEqual(self.seen(), [{"event": "group", "backend": "gloo", "asked": "nccl"}])

    def test_are_as_the_script_says_where_the_lab_says_nothing(self):
        self.assertEqual(self.run_script(self.SCRIPT).stdout.splitlines()[0], "made nccl env:// {'pg_options': 1}")

    def test_of_gloo_outlive_the_script_with_old_releases_only(self):
        script = "import torch\n{}import torch.distributed as dist\ndist.init_process_group()\ndist.destroy_process_group()"
        self.assertNotIn("destroyed", self.run_script(script.format(""), SPILLWAY_LAB_BACKEND="gloo").stdout)
        newer = script.format("torch.__version__ = '2.5'\n")
        self.assertIn("destroyed", self.run_script(newer, SPILLWAY_LAB_BACKEND="gloo").stdout)

    def test_of_spillway_need_no_import(self):
        self.write("spillway/__init__.py", "")
        self.write("spillway/torch.py", "print('imported')\n")
        done = self.run_script("import torch.distributed as dist; dist.init_process_group()",
                               SPILLWAY_LAB_BACKEND="spillway")
        self.assertEqual(done.stdout.splitlines()[:2], ["imported", "made spillway None {}"])


class Hooks(Case):
    SCRIPT = """
        from torch.nn.parallel.distributed import DistributedDataParallel
        model = DistributedDataParallel()
        print(model.forward(1), model.forward(2))
        """

    def test_are_put_in_once_before_the_first_pass(self):
        for hook, printed in (("fp16", "hook world fp16\n2 3\n"), ("powersgd", "hook world from 2 powerSGD_hook\n2 3\n")):
            done = self.run_script("import torch\n" + textwrap.dedent(self.SCRIPT), SPILLWAY_LAB_HOOK=hook)
            self.assertEqual(done.stdout, printed)
            self.assertEqual(self.seen()[-1], {"event": "hook", "hook": hook, "by": "lab"})
        self.assertEqual(len(self.seen()), 2)

    def test_of_powersgd_do_one_bucket_after_the_other_beside_the_backward_pass(self):
        done = self.run_script("import torch\n" + textwrap.dedent(self.SCRIPT) + textwrap.dedent("""
            class Bucket:
                is_cuda = False
                def __init__(self, number): self.number = number
                def buffer(self): return self
            futures = [model.hook(model.state, Bucket(number)) for number in (3, 2, 0, 1)]
            print(sum(future.done() for future in futures), "done at once")
            print(futures[0].wait(), futures[1].wait(), futures[2].exception(), futures[3].wait())
            """), SPILLWAY_LAB_HOOK="powersgd")
        self.assertEqual(done.stdout.splitlines()[2:],
                         ["0 done at once", "3 1", "2 1", "0 1", "1 1", "-3 -2 of the hook -1"])

    def test_of_powersgd_do_the_buckets_of_all_models_in_the_order_of_the_backward_passes(self):
        done = self.run_script("import torch\n" + textwrap.dedent(self.SCRIPT) + textwrap.dedent("""
            class Bucket:
                is_cuda = False
                def __init__(self, number): self.number = number
                def buffer(self): return self
            other = DistributedDataParallel()
            other.forward(1)
            futures = [one.hook(one.state, Bucket(number)) for number, one in enumerate((model, other) * 3, 1)]
            for future in futures: future.wait()
            """), SPILLWAY_LAB_HOOK="powersgd")
        self.assertEqual(done.stdout.splitlines()[3:], [f"{number} 1" for number in range(1, 7)])

    def test_of_powersgd_synchronize_no_cpu_where_there_is_a_gpu(self):
        script = "import torch\n" + textwrap.dedent(self.SCRIPT) + textwrap.dedent("""
            for device in (torch.device("cpu"), torch.device("cuda"), None, 1): torch.cuda.synchronize(device)
            """)
        done = self.run_script(script, SPILLWAY_LAB_HOOK="powersgd")
        self.assertEqual(done.stdout.splitlines()[2:], ["synchronized cuda", "synchronized None", "synchronized 1"])

    def test_of_powersgd_refuse_a_model_whose_own_all_reduces_would_get_between(self):
        script = """
            import torch
            from torch.nn.parallel.distributed import DistributedDataParallel
            def tried(**options):
                try:
                    return DistributedDataParallel(**options).forward(1)
                except RuntimeError as error:
                    return error
            print(tried(find_unused_parameters=True))
            for elsewhere in ("static_graph", "on_cuda"): print(tried(find_unused_parameters=True, **{elsewhere: True}))
            """
        lines = self.run_script(script, SPILLWAY_LAB_HOOK="powersgd").stdout.splitlines()
        self.assertIn("tcp-powersgd cannot run a DistributedDataParallel with find_unused_parameters=True", lines[0])
        self.assertEqual((lines[-3], lines[-1]), ("2", "2"))
        self.assertNotIn("cannot", self.run_script(script, SPILLWAY_LAB_HOOK="fp16").stdout)

    def test_of_the_script_stay(self):
        script = textwrap.dedent(self.SCRIPT).replace("print", "model.register_comm_hook(1, 2); print")
        done = self.run_script("import torch\n" + script, SPILLWAY_LAB_HOOK="fp16")
        self.assertEqual(done.stdout, "hook 1 2\n2 3\n")
        self.assertEqual(self.seen(), [{"event": "hook", "hook": "fp16", "by": "script"}])

    def test_none_is_put_in_where_none_is_wanted(self):
        self.assertEqual(self.run_script("import torch\n" + textwrap.dedent(self.SCRIPT)).stdout, "2 3\n")
        self.assertEqual(self.seen(), [])


class Layers(Case):
    SCRIPT = """
        import torch
        from spillway.torch.backward import LayerPolicy
        policies = LayerPolicy(), LayerPolicy(None), LayerPolicy(5), LayerPolicy(priority=7)
        print(*(policy.priority for policy in policies))
        """

    def setUp(self):
        super().setUp()
        self.write("spillway/__init__.py", "")
        self.write("spillway/torch/__init__.py", "")
        self.write("spillway/torch/backward.py", """
            class LayerPolicy:
                def __init__(self, priority=None): self.priority = priority
            """)

    def test_flat_gives_all_layers_one_priority_unless_the_script_chose_one(self):
        self.assertEqual(self.run_script(self.SCRIPT, SPILLWAY_LAB_HOOK="flat").stdout, "0 0 5 7\n")

    def test_without_flat_the_policy_stays(self):
        for hook in ("", "fp16"):
            self.assertEqual(self.run_script(self.SCRIPT, SPILLWAY_LAB_HOOK=hook).stdout, "None None 5 7\n")

    def test_flat_puts_no_hook_around_models(self):
        done = self.run_script("import torch\n" + textwrap.dedent(Hooks.SCRIPT), SPILLWAY_LAB_HOOK="flat")
        self.assertEqual(done.stdout, "2 3\n")
        self.assertEqual(self.seen(), [])


if __name__ == "__main__":
    unittest.main()
