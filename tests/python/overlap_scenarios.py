# SPDX-License-Identifier: Apache-2.0
"""Training with overlap(), compared with DistributedDataParallel bit for bit, at one rank of overlap_test.py."""
import contextlib
import copy
import io
import itertools
import pickle

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import spillway.torch
from spillway.torch import Auto, Exact, Planes, Sketch
from spillway.torch.guarded_parameter import GuardedParameter
from spillway.torch.overlapped_model import wait_for_nothing

STEPS = 50
FEW = 6
WORDS, WIDTH, BLOCK = 40, 24, 6

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


# ---- Models ----

class Tied(nn.Module):
    """Its last layer has the weights of the first, and the attention uses a submodule without calling it."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.wide = nn.Linear(WIDTH, 900)
        self.norm = nn.LayerNorm(900)
        self.narrow = nn.Linear(900, WIDTH)
        self.next = nn.Linear(WIDTH, WORDS, bias=False)
        self.next.weight = self.words.weight

    def forward(self, words):
        hidden = self.words(words)
        hidden = hidden + self.attention(hidden, hidden, hidden, need_weights=False)[0]
        return self.next(self.narrow(self.norm(self.wide(hidden).relu())))


class Branches(nn.Module):
    """Has a layer that nobody uses, one that some ranks use in some steps, one that does not learn, and buffers."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.fixed = nn.Linear(WIDTH, WIDTH)
        self.fixed.requires_grad_(False)
        self.wide = nn.Linear(WIDTH, 200)
        self.norm = nn.BatchNorm1d(BLOCK)
        self.sometimes = nn.Linear(200, 200)
        self.never = nn.Linear(WIDTH, WIDTH)
        self.next = nn.Linear(200, WORDS)
        self.calls = 0

    def forward(self, words):
        hidden = self.norm(self.wide(self.fixed(self.words(words))))
        self.calls += self.training
        if (self.calls + rank) % 3 == 0:
            hidden = hidden + self.sometimes(hidden)
        return self.next(hidden.relu())


def batch(step):
    """Each rank has other samples, and each step another number of them."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    words = torch.randint(0, WORDS, (3 + step % 3, BLOCK + 1), generator=generator)
    return words[:, :-1], words[:, 1:]


def loss_of(model, step):
    inputs, targets = batch(step)
    return nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


class Training:
    """A model with its optimizer and schedule, over `wrap`."""

    def __init__(self, make_model, make_optimizer, wrap):
        torch.manual_seed(5)
        module = make_model()
        self.model, self.optimizer = wrap(module, make_optimizer(module.parameters()))
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 7, 0.8)

    def step(self, step, clip=None):
        self.optimizer.zero_grad()
        loss_of(self.model, step).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        self.optimizer.step()
        self.schedule.step()

    def state(self):
        return {"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule.state_dict()}

    def load(self, state):
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])

    def values(self):
        """Parameters, gradients and, at the rank from which the others take them, buffers."""
        gradients = [torch.zeros(()) if each.grad is None else each.grad for each in self.model.parameters()]
        buffers = self.model.buffers() if rank == 0 else ()
        return [each.detach().clone() for each in itertools.chain(self.model.parameters(), gradients, buffers)]


def with_ddp(module, optimizer):
    return DistributedDataParallel(module, find_unused_parameters=True), optimizer


def with_overlap(module, optimizer):
    return spillway.torch.overlap(module, optimizer)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.02, momentum=0.9, weight_decay=1e-3)


OPTIMIZERS = [sgd, lambda parameters: torch.optim.Adam(parameters, lr=0.01),
              lambda parameters: torch.optim.AdamW(parameters, lr=0.01, foreach=True),
              lambda parameters: torch.optim.RMSprop(parameters, lr=0.003, momentum=0.5),
              lambda parameters: torch.optim.Adagrad(parameters, lr=0.05),
              lambda parameters: torch.optim.NAdam(parameters, lr=0.01)]


def assert_alike(ours, reference):
    assert len(ours) == len(reference)
    for place, (one, other) in enumerate(zip(ours, reference)):
        is_same = torch.equal(one, other) and one.isfinite().all()
        assert is_same, f"tensor {place} of {len(ours)}: {(one - other).abs().max()}"


def same_everywhere(values):
    own = torch.cat([value.reshape(-1) for value in values])
    everybody = [torch.empty_like(own) for _ in range(world)]
    dist.all_gather(everybody, own, group=gloo)
    assert all(torch.equal(own, other) for other in everybody)


# ---- The same bits ----

def train_with_interruptions(training):
    """Clips some gradients, and goes back to a checkpoint."""
    saved = io.BytesIO()
    for step in range(STEPS):
        training.step(step, clip=0.3 if step % 10 == 3 else None)
        if step == STEPS // 3:
            torch.save(training.state(), saved)
        if step == STEPS // 2:
            saved.seek(0)
            training.load(torch.load(saved))
    return training.values()


def check_optimizers(make_model):
    for make_optimizer in OPTIMIZERS:
        reference = train_with_interruptions(Training(make_model, make_optimizer, with_ddp))
        ours = train_with_interruptions(Training(make_model, make_optimizer, with_overlap))
        assert_alike(ours, reference)
        same_everywhere(ours[:len(list(make_model().parameters()))])


def six_optimizers_end_with_the_bits_of_ddp_with_tied_weights():
    check_optimizers(Tied)


def six_optimizers_end_with_the_bits_of_ddp_with_layers_that_are_not_used():
    check_optimizers(Branches)


def trained(wrap, steps, make_model=Tied):
    training = Training(make_model, sgd, wrap)
    steps(training)
    return training.values()


def assert_same_as_ddp(steps, make_model=Tied):
    assert_alike(trained(with_overlap, steps, make_model), trained(with_ddp, steps, make_model))


def gradients_that_accumulate_without_sums():
    def steps(training):
        for step in range(FEW):
            training.optimizer.zero_grad(set_to_none=step % 2 == 0)
            with training.model.no_sync():
                loss_of(training.model, 100 + step).backward()
                loss_of(training.model, 200 + step).backward()
            loss_of(training.model, step).backward()
            training.optimizer.step()

    assert_same_as_ddp(steps)


def gradients_that_accumulate_with_sums():
    """Two backward passes before a step, and no zero_grad() before the next."""
    def steps(training):
        for step in range(FEW):
            loss_of(training.model, 100 + step).backward()
            loss_of(training.model, step).backward()
            training.optimizer.step()
            if step % 3 == 2:
                training.model.zero_grad()

    assert_same_as_ddp(steps)


def several_forward_passes_before_a_backward_pass():
    def steps(training):
        for step in range(FEW):
            training.optimizer.zero_grad()
            loss = loss_of(training.model.module, 100 + step)
            (loss_of(training.model, step) + loss).backward()
            training.optimizer.step()

    assert_same_as_ddp(steps)


def whatever_uses_parameters_or_gradients_sees_what_it_would_with_ddp():
    def steps(training):
        module, optimizer, seen = training.model.module, training.optimizer, []
        average = copy.deepcopy(module)
        for step in range(FEW):
            optimizer.zero_grad()
            loss_of(training.model, step).backward()
            seen.append(module.wide.weight.grad.norm())
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                for kept, now in zip(average.parameters(), module.parameters()):
                    kept.lerp_(now, 0.3)
                seen += [module.narrow.weight.data.norm(), torch.stack([each.norm() for each in module.parameters()])]
            module.eval()
            seen.append(loss_of(module, 300 + step).detach())
            module.train()
            seen.append(copy.deepcopy(module.words.weight).detach())
            training.step(1000 + step)
            seen.append(optimizer.state[module.wide.weight]["momentum_buffer"].clone())
        values.append([*seen, *(each.detach() for each in average.parameters())])

    values = []
    assert_same_as_ddp(steps)
    assert_alike(*values)


def copies_and_files_of_a_module_are_no_part_of_the_overlap():
    torch.manual_seed(5)
    module = linear_layers()
    model, optimizer = with_overlap(module, sgd(module.parameters()))
    for step in range(2):
        linear_loss(model, step).backward()
        optimizer.step()
        file = io.BytesIO()
        pickle.dump(module[0], file)
        for other in (copy.deepcopy(module[0]), pickle.loads(file.getvalue())):
            ours, theirs = ([each.detach() for each in some.parameters()] for some in (module[0], other))
            assert_alike(ours, theirs)
            assert_guarded(other.parameters(), False)
            assert [hook._wait for hook in other[0]._forward_pre_hooks.values()] == [wait_for_nothing]
            other(torch.ones(2, 200)).sum().backward()


def linear_layers():
    return nn.Sequential(*(nn.Sequential(nn.Linear(200, 200), nn.ReLU()) for _ in range(3)))


def linear_loss(model, step):
    inputs = torch.randn(8, 200, generator=torch.Generator().manual_seed(10 * step + rank))
    return model(inputs).float().square().mean()


def updates_in_inference_mode_and_under_autocast_are_as_in_a_step():
    def steps(training):
        for step in range(FEW):
            training.optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = linear_loss(training.model, step)
            loss.backward()
            training.optimizer.step()
            if step % 2 == 0:
                with torch.inference_mode():
                    linear_loss(training.model.module, 100 + step)

    assert_same_as_ddp(steps, linear_layers)


def a_step_may_be_taken_twice_or_not_at_all():
    def steps(training):
        for step in range(FEW):
            training.optimizer.zero_grad()
            loss_of(training.model, step).backward()
            for _ in range(step % 3):
                training.optimizer.step()

    assert_same_as_ddp(steps)


def a_closure_and_hooks_on_steps_are_called_once():
    def steps(training):
        def loss():
            training.optimizer.zero_grad()
            found = loss_of(training.model, 3)
            found.backward()
            return found

        for _ in range(FEW):
            values.append(training.optimizer.step(loss).detach())

    values = []
    assert_same_as_ddp(steps)
    assert_alike(values[:FEW], values[FEW:])
    if hasattr(torch.optim.Optimizer, "register_step_post_hook"):
        model, optimizer = with_overlap(Tied(), torch.optim.SGD(Tied().parameters(), lr=0.1))
        called = []
        optimizer.register_step_post_hook(lambda *_: called.append(1))
        loss_of(model, 0).backward()
        optimizer.step()
        assert called == [1]


def compiled_layers_end_with_the_bits_of_ddp():
    """Where torch has a compiler. Layers are compiled before, and the whole model before and after."""
    if not hasattr(torch, "compile"):
        return

    def layers():
        module = linear_layers()
        for layer in module if how == "layers" else ():
            layer.compile(backend="eager")
        return torch.compile(module, backend="eager") if how == "before" else module

    def steps(training):
        model = torch.compile(training.model, backend="eager") if how == "after" else training.model
        for step in range(FEW):
            training.optimizer.zero_grad()
            linear_loss(model, step).backward()
            training.optimizer.step()
            training.schedule.step()

    for how in ("layers", "before", "after"):
        assert_same_as_ddp(steps, layers)


# ---- Groups and codecs ----

def over_gloo_it_works_as_well():
    def over_gloo(module, optimizer):
        return spillway.torch.overlap(module, optimizer, process_group=gloo)

    def steps(training):
        for step in range(FEW):
            training.step(step)

    ours, reference = trained(over_gloo, steps), trained(with_ddp, steps)
    assert all(torch.allclose(one, other, rtol=1e-3, atol=1e-5) for one, other in zip(ours, reference))
    same_everywhere(ours[:3])


def an_exact_codec_has_the_bits_of_a_hook():
    def steps(training):
        for step in range(FEW):
            training.step(step)

    def with_hook(module, optimizer):
        model = DistributedDataParallel(module)
        spillway.torch.attach(model, Exact())
        return model, optimizer

    ours = trained(lambda module, optimizer: spillway.torch.overlap(module, optimizer, Exact()), steps)
    assert_alike(ours, trained(with_hook, steps))


def codecs_with_error_feedback_leave_replicas_the_same():
    for codec, options in ((Planes(bits=6), {"loss_bound": 0.0, "measure_every": 2}), (Sketch(), {}), (Auto(), {})):
        torch.manual_seed(5)
        module = Tied()
        model, optimizer = spillway.torch.overlap(module, sgd(module.parameters()), codec, **options)
        first = float(loss_of(model, 0).detach())
        for _ in range(40):
            optimizer.zero_grad()
            loss_of(model, 0).backward()
            optimizer.step()
        last = float(loss_of(model, 0).detach())
        same_everywhere([each.detach() for each in model.parameters()])
        assert last < 0.9 * first, (codec, first, last)
        assert model.hook.report().codec in ("planes", "sketch", "entropy", "levels", "exact")
        assert model.hook.state_dict()["step"] == model.report().step


# ---- Waits and urgency ----

def assert_guarded(parameters, are):
    assert all((type(each) is GuardedParameter) == are for each in parameters)


def a_layer_waits_for_its_own_gradients_only():
    torch.manual_seed(5)
    module = nn.Sequential(*(nn.Linear(200, 200) for _ in range(3)))
    model, optimizer = with_overlap(module, sgd(module.parameters()))
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 200)).square().mean().backward()
        assert_guarded(module.parameters(), True)
        optimizer.step()
        assert_guarded(module.parameters(), True)
        overlap = model._overlap
        hidden, back = torch.ones(2, 200), overlap._transfers[0]  # the last layer's
        back.run, run = Never(back.run), back.run
        for layer in module[:2]:
            hidden = layer(hidden)
            assert_guarded(layer.parameters(), False)
        assert_guarded(module[2].parameters(), True)
        with expecting(TimeoutError, "never"):
            module[2](hidden)
        back.run = run
        module[2](hidden)
        assert_guarded(module.parameters(), False)
    report = model.report()
    assert [each.parameters[0] for each in report.buckets] == ["2.weight", "1.weight", "0.weight"]
    back, middle, front = (each.waited_by for each in report.buckets)
    assert (back, front) == ("2", "0") and middle in ("0", "1"), (back, middle, front)
    assert all(each.came >= each.left for each in report.buckets)
    assert len(report.table().splitlines()) == 4


class Never:
    """An all-reduce that does not end."""

    def __init__(self, run):
        self._run = run

    def is_done(self):
        return False

    def wait(self):
        raise TimeoutError("never")


def front_layers_are_the_most_urgent():
    torch.manual_seed(5)
    module = nn.Sequential(*(nn.Linear(200, 200) for _ in range(4)))
    for priority, expected in (("layer", [0, 2, 4, 7]), (2, [2, 2, 2, 2])):
        model, optimizer = spillway.torch.overlap(module, sgd(module.parameters()), priority=priority)
        for _ in range(2):
            model(torch.ones(2, 200)).square().mean().backward()
            priorities = [each.run._work.operation._options.priority for each in model._overlap._transfers]
            optimizer.synchronize()
        assert priorities == expected, priorities


# ---- Mistakes ----

@contextlib.contextmanager
def expecting(error, words):
    try:
        yield
    except error as caught:
        assert words in str(caught), caught
    else:
        raise AssertionError(words)


class Counting(torch.optim.SGD):
    """Has state in its parameter groups."""

    def step(self, closure=None):
        for group in self.param_groups:
            group["taken"] = group.get("taken", 0) + 1
        return super().step(closure)


def what_cannot_overlap_is_refused():
    module = Tied()
    for error, words, make in [
            (TypeError, "give model.module",
             lambda: with_overlap(DistributedDataParallel(module), sgd(module.parameters()))),
            (TypeError, "LBFGS updates all parameters at once",
             lambda: with_overlap(module, torch.optim.LBFGS(module.parameters()))),
            (TypeError, "an optimizer of torch.optim", lambda: with_overlap(module, "sgd")),
            (TypeError, "loss_bound: give a codec",
             lambda: spillway.torch.overlap(module, sgd(module.parameters()), loss_bound=0.1)),
            (ValueError, "priority is 'first'",
             lambda: spillway.torch.overlap(module, sgd(module.parameters()), priority="first")),
            (TypeError, "codec is 5", lambda: spillway.torch.overlap(module, sgd(module.parameters()), 5)),
            (ValueError, "no parameter that requires a gradient",
             lambda: with_overlap(nn.Linear(2, 2).requires_grad_(False), sgd(module.parameters())))]:
        with expecting(error, words):
            make()
    optimizer = sgd(module.parameters())
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    with expecting(ValueError, "before you make the scheduler"):
        with_overlap(module, optimizer)
    model, optimizer = with_overlap(module, sgd(module.parameters()))
    with expecting(ValueError, "has this optimizer already"):
        with_overlap(Tied(), optimizer)
    with expecting(TypeError, "use DistributedDataParallel"):
        spillway.torch.elastic(model, optimizer)


def an_optimizer_with_state_of_a_whole_group_is_refused():
    module = nn.Linear(20, 20)
    model, optimizer = with_overlap(module, Counting(module.parameters(), lr=0.1))
    model(torch.ones(2, 20)).sum().backward()
    optimizer.step()
    with expecting(RuntimeError, "Counting changes 'taken' of its parameter groups"):
        optimizer.synchronize()


SCENARIOS = [six_optimizers_end_with_the_bits_of_ddp_with_tied_weights,
             six_optimizers_end_with_the_bits_of_ddp_with_layers_that_are_not_used,
             gradients_that_accumulate_without_sums, gradients_that_accumulate_with_sums,
             several_forward_passes_before_a_backward_pass,
             whatever_uses_parameters_or_gradients_sees_what_it_would_with_ddp,
             updates_in_inference_mode_and_under_autocast_are_as_in_a_step,
             copies_and_files_of_a_module_are_no_part_of_the_overlap, a_step_may_be_taken_twice_or_not_at_all,
             a_closure_and_hooks_on_steps_are_called_once, compiled_layers_end_with_the_bits_of_ddp,
             over_gloo_it_works_as_well, an_exact_codec_has_the_bits_of_a_hook,
             codecs_with_error_feedback_leave_replicas_the_same,
             a_layer_waits_for_its_own_gradients_only, front_layers_are_the_most_urgent, what_cannot_overlap_is_refused,
             an_optimizer_with_state_of_a_whole_group_is_refused]
