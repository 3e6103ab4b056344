#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""spillway.torch.elastic with real processes that are killed.

    tests/python/elastic_test.py LIBRARY [unittest's arguments]

Skips without torch: exit code 77.
"""
import collections
import functools
import json
import os
import pickle
import random
import unittest

from torch_ranks import prepare

from harness.forked_ranks import run_ranks

prepare()

import torch

import elastic_scenarios  # needs the path that prepare() sets
from spillway.torch import elastic_state
from spillway.torch.state_description import DescriptionError, describe, fill, flatten, read

STEPS = 12


def run(processes, **keywords):
    return run_ranks(processes, elastic_scenarios.train, STEPS, *(keywords.get(name, default) for name, default in
                                                                  (("deaths", ()), ("arguments", None),
                                                                   ("codec", None), ("move", None))))


@functools.cache
def undisturbed(processes):
    """Rank 0's report of a job without changes."""
    return run(processes)[0]


class Elastic(unittest.TestCase):
    def check_ended(self, said, world):
        """All ranks are there and agree."""
        ended = [each for each in said if each is not None and each.get("rank") is not None]
        self.assertEqual(sorted(each["rank"] for each in ended), list(range(world)), said)
        self.assertEqual({each["parameters"] for each in ended}, {ended[0]["parameters"]})
        self.assertEqual({(each["world"], each["steps"]) for each in ended}, {(world, STEPS)})
        for each in ended:
            self.assertEqual(each["sizes"], [each["rank"], world])
            self.assertEqual(each["tracked"], STEPS)  # lost steps leave buffers as they were
        return ended

    def test_a_killed_rank_is_replaced_and_nobody_can_tell(self):
        plain = undisturbed(3)
        said = run(4, deaths=[(5, 1, 1)], arguments={"standbys": 1})
        ended = self.check_ended(said, 3)
        self.assertIsNone(said[1])
        self.assertEqual(said[3]["rank"], 1)
        self.assertTrue(said[3]["was_standby"])
        self.assertEqual(ended[0]["parameters"], plain["parameters"])
        self.assertIn("rank 1 is gone", said[0]["why"][0])
        self.assertEqual(said[0]["tries"]["5"], 2)
        for phase in ("interrupted", "parked", "decided", "connected", "state", "stepped"):
            self.assertIn(phase, said[0]["changes"][0])

    def test_the_first_rank_and_two_at_once_may_die(self):
        plain = undisturbed(4)
        said = run(7, deaths=[(3, 0, 1), (7, 1, 2), (7, 2, 2)], arguments={"standbys": 3})
        ended = self.check_ended(said, 4)
        self.assertEqual(ended[0]["parameters"], plain["parameters"])

    def test_a_rank_may_die_in_the_first_step(self):
        plain = undisturbed(3)
        ended = self.check_ended(run(4, deaths=[(0, 2, 1)], arguments={"standbys": 1}), 3)
        self.assertEqual(ended[0]["parameters"], plain["parameters"])

    def test_without_standbys_it_shrinks_if_it_may(self):
        said = run(3, deaths=[(4, 0, 1)], arguments={"shrink": True})
        ended = self.check_ended(said, 2)
        self.assertEqual({each["epoch"] for each in ended}, {2})

    def test_what_cannot_be_saved_ends_with_one_sentence(self):
        said = run(3, deaths=[(4, 1, 1)])
        for rank in (0, 2):
            self.assertEqual(said[rank]["type"], "JobEnded", said[rank])
            self.assertIn("rank 1 is gone", said[rank]["message"])
            self.assertIn("shrink", said[rank]["message"])

    def test_a_tolerant_hook_goes_on(self):
        said = run(4, deaths=[(6, 2, 1)], arguments={"standbys": 1}, codec={"bits": 8})
        self.check_ended(said, 3)

    def test_a_rank_is_moved_at_a_steps_edge(self):
        plain = undisturbed(3)
        said = run(4, arguments={"standbys": 1}, move=(3, "move 2"))
        ended = self.check_ended(said, 3)
        self.assertEqual(ended[0]["parameters"], plain["parameters"])
        self.assertEqual(said[3]["rank"], 2)
        self.assertIsNone(said[2]["rank"])

    def test_a_standby_that_is_not_needed_ends_with_the_job(self):
        said = run(4, arguments={"standbys": 1})
        self.check_ended(said, 3)
        self.assertEqual((said[3]["rank"], said[3].get("type")), (None, None), said[3])

    def test_a_job_that_is_asked_to_end_ends_well(self):
        for each in run(4, arguments={"standbys": 1}, move=(3, "end")):
            self.assertNotIn("type", each)
            self.assertLess(each.get("steps", 0), STEPS)
        for each in run(4, arguments={"standbys": 1}, move=(3, "end the disk is full")):
            self.assertEqual(each.get("type"), "JobEnded", each)
            self.assertIn("asked to end: the disk is full", each["message"])

    def test_more_standbys_than_processes_are_refused(self):
        for said in run(2, arguments={"standbys": 2}):
            self.assertIn("leave no rank", said["message"])


def run_parts(processes, deaths=(), deaf=None):
    return run_ranks(processes, elastic_scenarios.train_in_parts, STEPS, list(deaths), processes - 4, deaf)


@functools.cache
def undisturbed_parts():
    return run_parts(4)


class ElasticParts(unittest.TestCase):
    """Ranks 0 and 2, and 1 and 3, have the same half of a model."""

    def check_like(self, said, plain):
        ended = {each["rank"]: each for each in said if each is not None and each.get("rank") is not None}
        self.assertEqual(sorted(ended), [0, 1, 2, 3], said)
        for rank, each in ended.items():
            self.assertEqual(each["parameters"], plain[rank]["parameters"], said)
            self.assertEqual(each["steps"], STEPS)
            self.assertEqual(each["places"], [rank % 2, rank // 2, 2, 2])
        self.assertNotEqual(ended[0]["parameters"], ended[1]["parameters"])

    def test_groups_follow_and_a_part_comes_from_who_has_it(self):
        said = run_parts(6, deaths=[(5, 3, 1), (8, 0, 2)])
        self.check_like(said, undisturbed_parts())
        self.assertEqual(said[1]["epoch"], 3)

    def test_who_had_its_gradients_takes_the_step_that_others_have_taken(self):
        said = run_parts(4, deaf=(2, 6))
        self.check_like(said, undisturbed_parts())
        self.assertEqual({each["epoch"] for each in said}, {2})
        self.assertEqual([each["bytes"] for each in said], [[0]] * 4)  # no rank needed the state

    def test_a_part_that_nobody_has_any_more_ends_the_job(self):
        said = run_parts(6, deaths=[(4, 1, 1), (4, 3, 1)])
        for rank in (0, 2):
            self.assertEqual(said[rank].get("type"), "JobEnded", said)
            self.assertIn("nobody has the state of ranks 1 and 3 any more", said[rank]["message"])
        self.assertEqual({said[rank].get("type") for rank in (4, 5)}, {"JobEnded"}, said)

    def test_groups_that_make_no_sense_are_refused(self):
        said = run_ranks(2, elastic_scenarios.refusals)
        for each in said:
            self.assertIn("each rank from 0 on", each[0])
            self.assertIn("names 4 ranks, and there are 2", each[1])
            self.assertIn("cannot shrink", each[2])
            self.assertIn("one of `groups`", each[3])


class ElasticGrowth(unittest.TestCase):
    def test_standbys_become_ranks_when_it_is_asked_to_grow(self):
        said = run(4, arguments={"standbys": 2}, move=(3, "grow 2"))
        ended = Elastic.check_ended(self, said, 4)
        self.assertEqual([each["rank"] for each in said], [0, 1, 2, 3])
        self.assertIn("the job grows by 2", ended[0]["why"][0])


def sent(state):
    """The state as a receiver gets it."""
    flat = flatten(state)
    tree, kinds = read(describe(flat))
    return fill(tree, [torch.empty(kind.shape, dtype=kind.dtype).copy_(tensor)
                       for kind, tensor in zip(kinds, flat.tensors)])


class OwnWill:
    """Runs arbitrary code when it is unpickled."""

    def __reduce__(self):
        return os._exit, (66,)


class StateDescription(unittest.TestCase):
    def test_values_of_scripts_come_back_as_they_were(self):
        state = {"none": None, "numbers": [1, -2.5, float("inf"), 1 << 100, True], "text": "\u00e4\n", "bytes": b"\0\xff",
                 7: (1, (2,), []), "counter": collections.Counter([3, 3]), "ordered": collections.OrderedDict(b=1, a=2),
                 "random": random.getstate()}
        self.assertEqual(sent(state), state)
        self.assertIs(type(sent(state)["counter"]), collections.Counter)
        generator = torch.Generator().manual_seed(4)
        self.assertTrue(torch.equal(sent({"rng": generator.get_state()})["rng"], generator.get_state()))

    def test_numpys_random_state_comes_back(self):
        numpy = self.import_numpy()
        name, words, *rest = numpy.random.RandomState(5).get_state()
        said = sent([name, words, *rest, numpy.float32(0.5)])
        self.assertEqual([said[0], said[1].tolist(), *said[2:]], [name, words.tolist(), *rest, 0.5])
        said[1][0] = 0  # it is writable
        with self.assertRaisesRegex(TypeError, "/0 is of type numpy.ndarray"):
            flatten([numpy.array([object()])])

    def import_numpy(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not installed")
        return numpy

    def test_optimizers_and_schedulers_of_torch_come_back(self):
        model = torch.nn.Linear(3, 3)
        for name in ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "Adamax", "NAdam", "RAdam", "LBFGS"):
            optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.1)

            def loss():
                optimizer.zero_grad()
                total = model(torch.ones(2, 3)).pow(2).sum()
                total.backward()
                return total

            optimizer.step(loss)
            self.assertEqual(str(sent(optimizer.state_dict())), str(optimizer.state_dict()))
            optimizer.load_state_dict(sent(optimizer.state_dict()))
        schedulers = torch.optim.lr_scheduler
        for make in (lambda by: schedulers.MultiStepLR(by, [2, 4]), lambda by: schedulers.LambdaLR(by, lambda epoch: 0.9),
                     lambda by: schedulers.CosineAnnealingLR(by, 9), lambda by: schedulers.ReduceLROnPlateau(by),
                     lambda by: schedulers.OneCycleLR(by, 1.0, 9, cycle_momentum=False),
                     lambda by: schedulers.SequentialLR(by, [schedulers.StepLR(by, 2), schedulers.StepLR(by, 3)], [4])):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler, twin = make(optimizer), make(torch.optim.SGD(model.parameters(), lr=0.1))
            optimizer.step()
            scheduler.step(1.0) if isinstance(scheduler, schedulers.ReduceLROnPlateau) else scheduler.step()
            twin.load_state_dict(sent(elastic_state.TrainingState(model, [], [scheduler]).tree()["extra"][0]))
            self.assertEqual(twin.last_epoch, scheduler.last_epoch)

    def test_what_cannot_be_sent_is_refused_with_its_type_and_key(self):
        for state, words in (({"extra": [{"seen": {1, 2}}]}, "/extra/0/seen is of type builtins.set"),
                             ({"f": sent}, "/f is of type builtins.function"), ({"o": OwnWill()}, r"/o is of type .*OwnWill"),
                             ({"k": {(1, 2): 3}}, "/k is of type builtins.tuple as a key"),
                             ({"s": torch.eye(2).to_sparse()}, "/s is of type torch.Tensor .*sparse")):
            with self.assertRaisesRegex(TypeError, words):
                flatten(state)

    def test_too_much_that_is_no_tensor_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "return tensors for what is large"):
            describe(flatten({"bytes": bytes(elastic_state.MAX_DESCRIPTION_BYTES)}))

    def test_bytes_of_a_stranger_make_values_or_an_error(self):
        harmless = describe(flatten({"a": [1, (2.5, None)], "b": b"x", "t": torch.zeros(2)}))
        seeded = random.Random(1)
        for attempt in range(3000):
            bytes_ = bytearray(harmless)
            for _ in range(seeded.randint(1, 4)):
                bytes_[seeded.randrange(len(bytes_))] = seeded.randrange(256)
            try:
                tree, kinds = read(bytes(bytes_))
                fill(tree, [torch.zeros(1)] * len(kinds))
            except DescriptionError:
                pass
        for bytes_ in (pickle.dumps((OwnWill(), [])), b"[" * 100_000, b'{"tensors":[],"tree":' + b'{"list":[' * 50_000, b"",
                       b"null", b"[]"):
            with self.assertRaises(DescriptionError):
                read(bytes_)
        for tree in ({"os": "system"}, {"tensor": 0}, {"tensor": -1}, [1], {"list": 7}, {"dict": [[None, 1]]}, {},
                     {"bytes": "?"}, {"array": ["O", [1], ""]}, {"array": ["i4,i4", [0], ""]}):
            with self.assertRaises(DescriptionError, msg=tree):
                fill(read(json.dumps({"tensors": [], "tree": tree}).encode())[0], [])

    def test_a_receiver_allocates_no_more_than_its_model_explains(self):
        def places(path, shape, dtype="float32"):
            model = [] if path == "/model/w" else [["/model/w", [4], "float32"]]
            _, kinds = read(json.dumps({"tensors": [[path, shape, dtype], *model], "tree": None}).encode())
            return elastic_state.places_for(kinds, flatten({"model": {"w": torch.zeros(4)}}))

        self.assertEqual(places("/optimizers/0/state/0/exp_avg", [4])[0].shape, (4,))
        self.assertEqual(places("/extra/0/table", [1 << 20])[0].numel(), 1 << 20)
        with self.assertRaisesRegex(RuntimeError, "/extra/0/table with 4398046511104 bytes"):
            places("/extra/0/table", [1 << 20, 1 << 20])
        with self.assertRaisesRegex(RuntimeError, "are allowed beside its model"):
            places("/extra/0/table", [1 << 60] * 60)
        with self.assertRaisesRegex(RuntimeError, "this process's model is not the job's"):
            places("/model/w", [1 << 40])
        for shape in ([-1], [True], ["4"], 4, [1] * 65):
            with self.assertRaises(DescriptionError, msg=shape):
                places("/extra/0/table", shape)

    def test_a_model_must_come_whole(self):
        own = flatten({"model": {"w": torch.zeros(4), "b": torch.zeros(2)}, "optimizers": [{"step": torch.zeros(1)}]})

        def places(*paths):
            kinds = {kind.path: kind for kind in own.kinds}
            return elastic_state.places_for([kinds[path] for path in paths], own)

        self.assertEqual([each.shape for each in places("/model/b", "/model/w")], [(2,), (4,)])  # no optimizer's state
        for paths, missing in ((("/model/w",), "lacks 1 of .* b for one"), ((), "lacks 2 of .* w for one"),
                               (("/optimizers/0/step",), "lacks 2 of .* w for one"),
                               (("/model/w", "/model/w"), "this process's model is not the job's: w is .* missing")):
            with self.assertRaisesRegex(RuntimeError, missing):
                places(*paths)

    def test_an_array_is_of_numbers_whatever_its_type_is_called(self):
        numpy = self.import_numpy()
        for name in ("|b1", "|i1", "|u1", "<i2", "<u4", "<i8", "<f2", "<f4", ">f8", "<c8", "<c16",
                     numpy.dtype("longdouble").str):
            values = numpy.array([0, 1, 1], dtype=name)
            said = sent([values])[0]
            self.assertEqual((said.dtype, said.tolist()), (values.dtype, values.tolist()))
        for name in ("(", "f4,(", "1)f4", "f4", "float32", "<f3", "<f4 ", "<f4\n", "<f\u0664", "<f444", "|O", "|O8", "<M8[s]",
                     "|V2", "|S4", "<U4", "<f4,<f4", "{'names':", "", 4, None, ["<f4"], {"list": []}):
            with self.assertRaisesRegex(DescriptionError, "no description of a state", msg=name):
                fill({"array": [name, [1], "AAAAAA=="]}, [])
        for value in (numpy.array(["text"]), numpy.zeros(1, "<M8[s]"), numpy.zeros(1, "i4,i4")):
            with self.assertRaisesRegex(TypeError, "/0 is of type numpy.ndarray"):
                flatten([value])

    def test_a_state_with_other_parts_is_refused(self):
        model = torch.nn.Linear(2, 2)
        state = elastic_state.TrainingState(model, [torch.optim.SGD(model.parameters(), lr=0.1)], [])
        own = state.tree()
        for tree in (None, {}, {**own, "optimizers": []}, {**own, "extra": [{}]}, {**own, "optimizers": [{"state": {}}]},
                     {**own, "optimizers": [{"state": {}, "param_groups": [7]}]}):
            with self.assertRaisesRegex(RuntimeError, "is not this job's"):
                state.adopt(tree, own)
        state.adopt(own, own)


if __name__ == "__main__":
    unittest.main()
