# SPDX-License-Identifier: Apache-2.0
"""DDP over the backend and with the hook, at one rank of torch_test.py."""
import importlib.util
import io
import unittest.mock

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import spillway.torch
from harness.patience import wait_until
from spillway.torch import Auto, Blocks, Entropy, Exact, Levels, Planes, Sketch
from spillway.torch.ddp_hook import BucketRun

STEPS = 3
MOST_STEPS_OWED = 500
SMALL_BUCKETS_MB = 0.05  # several of them, after a first one of a MiB

report_of = BucketRun.report

gloo = None
rank = world = None


def set_up():
    global gloo, rank, world
    dist.init_process_group("spillway")
    gloo = dist.new_group(backend="gloo")
    rank, world = dist.get_rank(), dist.get_world_size()


def tear_down():
    dist.barrier()
    dist.destroy_process_group()


def make_model(group=None, seed=7):
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(40, 400), torch.nn.ReLU(), torch.nn.Linear(400, 700), torch.nn.ReLU(),
              torch.nn.Linear(700, 10)]
    return DistributedDataParallel(torch.nn.Sequential(*layers), process_group=group, bucket_cap_mb=SMALL_BUCKETS_MB)


def train(model, optimizer, steps):
    """Each rank has different data, and so has each step."""
    for step in steps:
        generator = torch.Generator().manual_seed(1000 * step + rank)
        inputs = torch.randn(16, 40, generator=generator)
        targets = torch.randint(0, 10, (16,), generator=generator)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def parameters_of(model):
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def trained(group=None, steps=STEPS, attach=None):
    model = make_model(group)
    hook = attach(model) if attach else None
    train(model, sgd(model), range(steps))
    return parameters_of(model), hook


def assert_same_everywhere(values):
    everybody = [torch.empty_like(values) for _ in range(world)]
    dist.all_gather(everybody, values, group=gloo)
    assert all(torch.equal(values, other) for other in everybody)


class Unused(torch.nn.Module):
    """Has buffers, which DDP broadcasts, and a layer that some ranks do not use."""

    def __init__(self):
        super().__init__()
        self.common = torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.BatchNorm1d(30))
        self.sometimes = torch.nn.Linear(30, 30)

    def forward(self, inputs):
        hidden = self.common(inputs)
        return hidden if rank == 1 else self.sometimes(hidden)


def trained_with_unused_layers(group):
    torch.manual_seed(11)
    model = DistributedDataParallel(Unused(), process_group=group, find_unused_parameters=True)
    train(model, sgd(model), range(STEPS))
    return parameters_of(model)


def layers_that_some_ranks_do_not_use():
    """DDP waits, in C++, for its own works: broadcasts of buffers, and the sum of used parameters."""
    ours, reference = trained_with_unused_layers(None), trained_with_unused_layers(gloo)
    assert torch.allclose(ours, reference, rtol=1e-4, atol=1e-5)
    assert_same_everywhere(ours)


class Writer:
    """The part of TensorBoard's SummaryWriter that the hook needs."""

    def __init__(self):
        self.scalars = {}

    def add_scalar(self, name, value, step):
        self.scalars[name, step] = value


def training_is_close_to_gloo_and_the_same_everywhere():
    ours, _ = trained()
    reference, _ = trained(gloo)
    assert torch.allclose(ours, reference, rtol=1e-4, atol=1e-6), (ours - reference).abs().max()
    assert_same_everywhere(ours)


def a_hook_that_is_exact_is_close_to_gloo():
    ours, hook = trained(attach=lambda model: spillway.torch.attach(model, Exact()))
    reference, _ = trained(gloo)
    assert torch.allclose(ours, reference, rtol=1e-4, atol=1e-6)
    assert_same_everywhere(ours)
    report = hook.report()
    assert report.exact and report.step == STEPS - 1, report
    assert report.cpu_bytes == 0 and report.parts.encode == 0.0 and report.parts.exchange > 0, report


def a_hook_that_may_lose_leaves_replicas_the_same():
    ours, hook = trained(steps=6, attach=lambda model: spillway.torch.attach(model, Planes(16)))
    exact, _ = trained(steps=6)
    assert_same_everywhere(ours)
    assert 0 < (ours - exact).norm() < 1e-2 * exact.norm()
    report = hook.report()
    assert report.step == 5 and not report.exact and report.buckets > 1, report
    assert report.contributors == world and report.late_ranks == () and report.seconds > 0, report
    assert report.gradient_bytes == 4 * ours.numel() and report.wire_bytes > 0 and report.packets > 0, report
    assert report.cpu_bytes == report.gradient_bytes and report.gpu_bytes == 0, report
    assert_has_parts(report)


def assert_has_parts(report):
    """Checks parts of gradients that the CPU coded."""
    parts = report.parts
    assert parts.encode > 0 and parts.decode > 0 and parts.exchange > 0, parts
    assert parts.to_host == parts.to_device == parts.gpu_wait == 0.0, parts
    assert report.scalars()["encode_seconds"] == parts.encode and "to_host_seconds" not in report.scalars()


def a_hook_whose_numbers_can_be_added_leaves_replicas_the_same():
    exact, _ = trained(steps=6)
    for codec, furthest in ((Levels(), 0.05), (Levels(8, predicted_scale=True), 0.02), (Blocks(), 1e-4),
                            (Blocks(predicted_scale=True), 1e-3)):
        ours, hook = trained(steps=6, attach=lambda model: spillway.torch.attach(model, codec, loss_bound=0.0))
        assert_same_everywhere(ours)
        assert (ours - exact).norm() < furthest * exact.norm(), (codec, (ours - exact).norm() / exact.norm())
        report = hook.report()
        assert (report.codec, report.contributors, report.exact) == (codec.name, world, False), report
        assert report.parts_alone > 0 and report.parts_added == 0, report  # no switch adds here
        assert report.scalars()["parts_alone"] == report.parts_alone
        assert_has_parts(report)


def a_hook_whose_numbers_are_coded_leaves_replicas_the_same():
    exact, _ = trained(steps=6)
    for codec in (Entropy(), Entropy(algorithm="ring"), Entropy(10, predicted_scale=True), Sketch()):
        ours, hook = trained(steps=6, attach=lambda model: spillway.torch.attach(model, codec))
        assert_same_everywhere(ours)
        assert (ours - exact).norm() < 0.02 * exact.norm(), (codec, (ours - exact).norm() / exact.norm())
        report = hook.report()
        assert (report.codec, report.contributors, report.exact) == (codec.name, world, False), report
        assert (report.predicted > 0) == (codec == Sketch()), report
        assert 0 < report.bits_per_value < 16, report
        assert_has_parts(report)


def error_feedback_makes_up_for_what_levels_round_away():
    """If the gradients are the same in every step, their mean over steps approaches the exact one."""
    def mean_gradient(steps, codec):
        torch.manual_seed(5)
        model = DistributedDataParallel(torch.nn.Linear(300, 100, bias=False))
        hook = spillway.torch.attach(model, codec, warm_up_steps=0, loss_bound=0.0)
        inputs = torch.randn(8, 300, generator=torch.Generator().manual_seed(rank))
        total = torch.zeros(100, 300)
        for _ in range(steps):
            model.zero_grad()
            model(inputs).square().mean().backward()
            total += model.module.weight.grad / steps
        return total, hook

    exact, _ = mean_gradient(1, Exact())
    once, _ = mean_gradient(1, Levels())
    often, hook = mean_gradient(12, Levels())
    assert hook.report().codec == "levels"
    assert (often - exact).norm() < 0.2 * (once - exact).norm(), ((often - exact).norm(), (once - exact).norm())


def a_hook_on_a_gloo_group_makes_its_own_communicator():
    """It unpickles nothing: a forged rank could run code in the others."""
    with unittest.mock.patch.object(dist.distributed_c10d, "_unpickler", side_effect=AssertionError):
        ours, hook = trained(gloo, attach=spillway.torch.attach)
    assert_same_everywhere(ours)
    assert hook.report().contributors == world


def a_hook_on_a_sub_group():
    pair = dist.new_group([0, 2], backend="gloo")
    if rank in (0, 2):
        _, hook = trained(pair, attach=spillway.torch.attach)
        assert hook.report().contributors == 2


def steps_of_a_warm_up_and_steps_that_are_asked_for_are_exact():
    model = make_model()
    writer = Writer()
    hook = spillway.torch.attach(model, Planes(16), warm_up_steps=2, measure_every=1, writer=writer)
    optimizer = sgd(model)
    reports = []
    for step in range(5):
        if step == 3:
            with hook.exactly():
                train(model, optimizer, [step])
        else:
            train(model, optimizer, [step])
        reports.append(hook.report())
    assert [report.exact for report in reports] == [True, True, False, True, False]
    assert [report.nmse is not None for report in reports] == [False, False, True, False, True]
    assert 0 < reports[2].nmse < 1e-6, reports[2]
    assert writer.scalars["spillway/nmse", 2] == reports[2].nmse
    assert writer.scalars["spillway/gradient_bytes", 4] == reports[4].gradient_bytes


def mean_error_of_constant_gradients(error_feedback, steps=24):
    """Error of the mean over steps with constant gradients: error feedback makes up for coding."""
    torch.manual_seed(3)
    model = DistributedDataParallel(torch.nn.Linear(300, 20, bias=False))
    spillway.torch.attach(model, Planes(8, 32), loss_bound=0.0, error_feedback=error_feedback)
    inputs = torch.randn(4, 300, generator=torch.Generator().manual_seed(rank))
    total, first = 0, None
    for _ in range(steps):
        model.zero_grad()
        model(inputs).sum().backward()
        gradient = model.module.weight.grad.double()
        first = gradient.clone() if first is None else first  # the exact one from the warm-up
        total = total + gradient - first
    return float((total / (steps - 1)).norm() / first.norm())


def error_feedback_makes_up_for_what_coding_leaves_out():
    with_feedback, without = mean_error_of_constant_gradients(True), mean_error_of_constant_gradients(False)
    assert with_feedback < 0.5 * without, (with_feedback, without)


class Ledger:
    """A layer's gradients as the hook averages them: the part of all ranks' gradients that sums have used so far."""

    def __init__(self):
        torch.manual_seed(3)
        self.model = DistributedDataParallel(torch.nn.Linear(300, 20, bias=False))
        self.hook = spillway.torch.attach(self.model, Planes(32), loss_bound=0.0, least_contributors=0.5)
        self.used = torch.zeros(300 * 20, dtype=torch.double)
        self.first_coordinator = None  # of the next step
        self.steps = -1  # the first step is warm-up: exact, and not counted

    def may_last_rank_be_late(self):
        """False if it is the next step's second coordinator. If the first is slow, the others turn to the second, and
        then wait for it (lib/collective/tolerant/agreement.h). agreement_test.cc has it late beside a first coordinator
        that is not."""
        return (self.first_coordinator + 1) % world != world - 1

    def step(self, inputs, is_late=False):
        """If is_late, the last rank begins when the others have ended the step. Returns whether a rank was left out."""
        store, ended = dist.distributed_c10d._get_default_store(), f"others that ended step {self.steps}"
        dist.barrier(group=gloo)
        if is_late and rank == world - 1:
            wait_until(lambda: store.add(ended, 0) == world - 1, f"the end of step {self.steps} at the other ranks")
        reports = []
        with unittest.mock.patch.object(BucketRun, "report", lambda run: reports.append(report_of(run)) or reports[-1]):
            self.model.zero_grad()
            self.model(inputs).sum().backward()
            assert not reports, "nobody has asked for a report"
            self.hook.report()
        if rank < world - 1:
            store.add(ended, 1)
        gradient = self.model.module.weight.grad.double().reshape(-1)
        left_out = torch.zeros(1)
        for shard in reports[-1].shards:
            part = slice(shard.first, shard.first + shard.count)
            self.used[part] += gradient[part] * shard.contributors
            left_out += shard.contributors < world
        dist.all_reduce(left_out, group=gloo)
        if reports[-1].shards:
            # The owners and the coordinators move on by one rank with every operation.
            first = reports[-1].shards[0].owner
            assert self.first_coordinator in (None, first), "a step has another number of operations"
            self.first_coordinator = (first + 1) % world
        self.steps += 1
        return bool(left_out)


def what_a_late_rank_did_not_contribute_comes_later():
    """Sums use everything in the end: none of the late rank's gradients is lost, nor those for the shard that it
    owned."""
    ledger = Ledger()
    inputs = torch.randn(4, 300, generator=torch.Generator().manual_seed(rank))
    own = inputs.double().sum(0).repeat(20)
    everybody = own.clone()
    dist.all_reduce(everybody, group=gloo)
    for _ in range(18):  # the others' pace is known after 8, however long these take: nobody is left out before
        ledger.step(inputs)
    for _ in range(2 * world):
        is_late = ledger.may_last_rank_be_late()
        assert ledger.step(inputs, is_late) or not is_late
    expected = ledger.steps * everybody
    for _ in range(MOST_STEPS_OWED):  # no new gradients, until the residual has arrived: a rank may be late again
        if torch.allclose(ledger.used, expected, rtol=1e-4, atol=1e-3):
            break
        ledger.step(torch.zeros(4, 300))
    assert torch.allclose(ledger.used, expected, rtol=1e-4, atol=1e-3)
    assert_same_everywhere(ledger.used)


def a_run_from_a_checkpoint_goes_on_bit_for_bit():
    """Three exact steps; then once straight on, and once from a checkpoint in a new model and optimizer."""
    model = make_model()
    hook = spillway.torch.attach(model, Exact())
    optimizer = sgd(model)
    train(model, optimizer, range(3))
    saved = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "hook": hook.state_dict()}, saved)
    train(model, optimizer, range(3, 6))

    saved.seek(0)
    checkpoint = torch.load(saved)
    resumed = make_model(seed=99)
    resumed_hook = spillway.torch.attach(resumed, Exact())
    resumed_optimizer = sgd(resumed)
    resumed.load_state_dict(checkpoint["model"])
    resumed_optimizer.load_state_dict(checkpoint["optimizer"])
    resumed_hook.load_state_dict(checkpoint["hook"])
    train(resumed, resumed_optimizer, range(3, 6))
    assert torch.equal(parameters_of(model), parameters_of(resumed))
    assert resumed_hook.report().step == hook.report().step == 5


def sharded(group):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(30, 60), torch.nn.ReLU(), torch.nn.Linear(60, 10))
    fully_shard(model, mesh=DeviceMesh.from_group(group, "cpu"))
    optimizer = sgd(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(8, 30, generator=torch.Generator().manual_seed(10 * step + rank))).square().mean().backward()
        optimizer.step()
    return torch.cat([parameter.full_tensor().detach().reshape(-1) for parameter in model.parameters()])


def has_fully_shard():
    """torch 1.13 lacks it, and looking for it fails there under Python 3.11; so look for its prerequisite first."""
    if importlib.util.find_spec("torch.distributed.device_mesh") is None:
        return False
    return hasattr(importlib.import_module("torch.distributed.fsdp"), "fully_shard")


def fully_sharded_models_where_torch_has_them():
    if has_fully_shard():
        assert torch.allclose(sharded(dist.group.WORLD), sharded(gloo), rtol=1e-4, atol=1e-6)


def gradients_of_half_precision():
    torch.manual_seed(5)
    model = DistributedDataParallel(torch.nn.Linear(30, 30).to(torch.bfloat16))
    hook = spillway.torch.attach(model, warm_up_steps=0)
    inputs = torch.randn(4, 30, generator=torch.Generator().manual_seed(rank)).to(torch.bfloat16)
    model(inputs).float().square().sum().backward()
    assert not hook.report().exact
    assert_same_everywhere(model.module.weight.grad.float())


def what_is_wrong_in_a_call_is_said():
    model = make_model()
    for words, make in [("Planes: bits is 33; it is a whole number from 1 to 32", lambda: Planes(33)),
                        ("Planes: bits is 5.5; it is a whole number", lambda: Planes(5.5)),
                        ("Planes: bits is -5", lambda: Planes(-5)),
                        ("Planes: bits_back is 0", lambda: Planes(5, 0)),
                        ("Planes: min_planes is 6; it is a whole number from 1 to 5", lambda: Planes(min_planes=6)),
                        ("importance is 8: it must be 'energy' or 0 to 7", lambda: Planes(importance=8)),
                        ("expendable is 2: it is a share", lambda: Planes(expendable=2)),
                        ("Levels: bits is 5; it is 2, 3, 4 or 8", lambda: Levels(5)),
                        ("Entropy: bits is 17; it is a whole number from 2 to 16", lambda: Entropy(17)),
                        ("Sketch: algorithm is 'tree'; it is 'auto', 'direct' or 'ring'",
                         lambda: Sketch(algorithm="tree")),
                        ("Auto: max_error is 0; it must be above 0 and below 1", lambda: Auto(max_error=0))]:
        try:
            make()
        except ValueError as caught:
            assert words in str(caught), caught
        else:
            raise AssertionError(words)
    for error, words, arguments in [(TypeError, "give a codec of spillway.torch", {"codec": "planes"}),
                                    (ValueError, "all packets arrive", {"codec": Entropy(), "loss_bound": 0.01}),
                                    (ValueError, "leave error_feedback on",
                                     {"codec": Levels(predicted_scale=True), "error_feedback": False}),
                                    (ValueError, "leave error_feedback on",
                                     {"codec": Sketch(), "error_feedback": False}),
                                    (ValueError, "loss_bound is 3: it is a share, from 0 to 1", {"loss_bound": 3}),
                                    (ValueError, "loss_bound is 3: it is a share", {"codec": Auto(), "loss_bound": 3}),
                                    (ValueError, "loss_bound is -1", {"loss_bound": -1}),
                                    (ValueError, "least_contributors is 'all'", {"least_contributors": "all"}),
                                    (ValueError, "priority is 'first': it must be 'layer'", {"priority": "first"}),
                                    (ValueError, "warm_up_steps", {"warm_up_steps": -1})]:
        try:
            spillway.torch.attach(model, **arguments)
        except error as caught:
            assert words in str(caught), caught
        else:
            raise AssertionError(arguments)
    try:
        spillway.torch.attach(model.module)
    except TypeError as caught:
        assert "DistributedDataParallel" in str(caught)


def embedded(group):
    """The weights of an embedding with sparse gradients, after some steps."""
    torch.manual_seed(3)
    layers = torch.nn.Sequential(torch.nn.Embedding(100, 8, sparse=True), torch.nn.Linear(8, 4))
    model = DistributedDataParallel(layers, process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(1000 * step + rank)
        words = torch.randint(0, 100, (5 + rank, 3), generator=generator)
        optimizer.zero_grad()
        model(words).square().mean().backward()
        assert layers[0].weight.grad.is_sparse
        optimizer.step()
    return layers[0].weight.detach()


def sparse_gradients_train_as_with_gloo():
    assert torch.allclose(embedded(None), embedded(gloo), rtol=1e-4, atol=1e-5)


SCENARIOS = [sparse_gradients_train_as_with_gloo, training_is_close_to_gloo_and_the_same_everywhere,
             layers_that_some_ranks_do_not_use,
             a_hook_that_is_exact_is_close_to_gloo, a_hook_that_may_lose_leaves_replicas_the_same,
             a_hook_whose_numbers_can_be_added_leaves_replicas_the_same,
             a_hook_whose_numbers_are_coded_leaves_replicas_the_same,
             error_feedback_makes_up_for_what_levels_round_away,
             a_hook_on_a_gloo_group_makes_its_own_communicator, a_hook_on_a_sub_group,
             steps_of_a_warm_up_and_steps_that_are_asked_for_are_exact,
             error_feedback_makes_up_for_what_coding_leaves_out, what_a_late_rank_did_not_contribute_comes_later,
             a_run_from_a_checkpoint_goes_on_bit_for_bit,
             fully_sharded_models_where_torch_has_them, gradients_of_half_precision, what_is_wrong_in_a_call_is_said]
