#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small model with DistributedDataParallel. Only the backend's name is specific to Spillway; with --overlap,
Spillway replaces DistributedDataParallel, and the next forward pass overlaps with gradients that still travel.

    torchrun --nproc_per_node 4 examples/train.py --backend spillway
    mpirun -n 4 examples/train.py --backend gloo
    spillway lab run --preset congested -- python3 examples/train.py --backend spillway --target-accuracy 0.85
    spillway lab compare --preset congested -- python3 examples/train.py --log {log}

--model cnn     classifies images of clothes: Fashion-MNIST, Debian's dataset-fashion-mnist
--model deep    the same images, twelve equal layers
--model vgg     the same images, convolutions that compute and a classifier that has the parameters
--model charlm  a transformer that predicts the next character of the King James Bible of 1611, whose copyright has
                expired: Debian's bible-kjv

The samples of a step depend only on the seed, the step and the rank, and the models draw no random numbers. So a run
resumed from a checkpoint continues as if it had never stopped, bit for bit if all-reduces are exact.

With --log, rank 0 writes one JSON object per line; `seconds` counts from the start of training, `epoch` counts complete
epochs:
    {"event": "step", "step", "seconds", "step_ms", "loss"}        loss and time of rank 0
    {"event": "evaluation", "step", "seconds", "epoch", "accuracy"}
    {"event": "end", "step", "seconds", "epoch", "accuracy", "reason", "backend", "model", "parameters", "world",
     "batch", "seed", "step_ms"}                                   reason: target, seconds, steps or epochs; step_ms: the median
"""
import argparse
import gzip
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")
WHOLE_BIBLE = ["bible", "-l79", "gen1:1-rev22:21"]
BLOCK = 64               # characters per sample
HELD_BACK = 0.05         # share of the text kept for evaluation
BAR_COLUMNS = 30
CHECKPOINT = "checkpoint.pt"

# Rank and world size as set by launchers that do not set torch's variables.
LAUNCHERS = [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"),
             ("SLURM_PROCID", "SLURM_NTASKS")]


# ---- Data ----

class Data(NamedTuple):
    """uint8 inputs and int64 targets, one row per sample."""
    inputs: torch.Tensor
    targets: torch.Tensor
    test_inputs: torch.Tensor
    test_targets: torch.Tensor


def missing(what: str, package: str) -> SystemExit:
    return SystemExit(f"train.py: {what} is missing. Install the Debian package {package} (apt-get install {package}), "
                      "or say with --data where the data is")


def read_idx(path: pathlib.Path) -> torch.Tensor:
    """Reads a file in MNIST's format: two zero bytes, a type, the number of dimensions, the dimensions, the data."""
    if not path.is_file():
        raise missing(str(path), "dataset-fashion-mnist")
    content = bytearray(gzip.decompress(path.read_bytes()))
    dimensions = content[3]
    shape = [int.from_bytes(content[4 + 4 * at:8 + 4 * at], "big") for at in range(dimensions)]
    return torch.frombuffer(content, dtype=torch.uint8, offset=4 + 4 * dimensions).view(shape)


def fashion_mnist(folder: Optional[pathlib.Path]) -> Data:
    folder = folder or FASHION_MNIST
    return Data(*(part for name in ("train", "t10k") for part in
                  (read_idx(folder / f"{name}-images-idx3-ubyte.gz"),
                   read_idx(folder / f"{name}-labels-idx1-ubyte.gz").long())))


def read_text(path: Optional[pathlib.Path]) -> bytes:
    if path is not None:
        if not path.is_file():
            raise missing(str(path), "bible-kjv")
        return path.read_bytes()
    if shutil.which(WHOLE_BIBLE[0]) is None:
        raise missing(f"the program {WHOLE_BIBLE[0]}", "bible-kjv")
    return subprocess.run(WHOLE_BIBLE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True).stdout


def blocks_of_text(path: Optional[pathlib.Path]) -> Data:
    """Each block's targets are its characters shifted by one."""
    text = torch.frombuffer(bytearray(read_text(path)), dtype=torch.uint8)
    blocks = (len(text) - 1) // BLOCK
    held_back = int(blocks * HELD_BACK)
    if held_back == 0:
        raise SystemExit(f"train.py: {len(text)} characters are too few to learn from")
    inputs = text[:blocks * BLOCK].view(blocks, BLOCK)
    targets = text[1:blocks * BLOCK + 1].view(blocks, BLOCK).long()
    return Data(inputs[:-held_back], targets[:-held_back], inputs[-held_back:], targets[-held_back:])


# ---- Models: they take uint8 inputs and return class scores in the last dimension ----

class Cnn(nn.Module):
    """Two convolutions, and a wide layer with nearly all parameters. Its gradients travel while those of the
    convolutions are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(),
                                      nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten())
        self.classes = nn.Sequential(nn.Linear(16 * 7 * 7, 2560), nn.ReLU(), nn.Linear(2560, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classes(self.features(images.unsqueeze(1).float() / 255 - 0.5))


class Deep(nn.Module):
    """Twelve equal layers, over the middle of each image."""

    def __init__(self, width: int = 400, layers: int = 12) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.classes = nn.Linear(width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = images[:, 4:24, 4:24].flatten(1).float() / 255 - 0.5
        for layer in self.layers:
            hidden = hidden + layer(hidden).relu() / len(self.layers)
        return self.classes(hidden)


class Vgg(nn.Module):
    """As in VGG, the front computes and the back has nearly all parameters."""

    def __init__(self) -> None:
        super().__init__()
        widths = [1, 16, 32, 64, 64]
        pairs = zip(widths, widths[1:])
        convolutions = [[nn.Conv2d(before, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)]
                        for before, width in pairs]
        self.features = nn.Sequential(*(layer for each in convolutions for layer in each), nn.Flatten())
        self.classes = nn.Sequential(nn.Linear(64 * 2 * 2, 1200), nn.ReLU(), nn.Linear(1200, 1200), nn.ReLU(),
                                     nn.Linear(1200, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classes(self.features(images.unsqueeze(1).float() / 255 - 0.5))


class CharLm(nn.Module):
    """A transformer over bytes."""

    def __init__(self, width: int = 128, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.characters = nn.Embedding(256, width)
        self.places = nn.Embedding(BLOCK, width)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True,
                                                               norm_first=True) for _ in range(layers))
        self.next = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 256))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        length = text.shape[1]
        is_ahead = torch.ones(length, length, dtype=torch.bool).triu(1)
        hidden = self.characters(text.long()) + self.places(torch.arange(length))
        for layer in self.layers:
            hidden = layer(hidden, is_ahead)
        return self.next(hidden)


def sgd(parameters: Iterator[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9)


def adam(parameters: Iterator[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=lr)


class Recipe(NamedTuple):
    """A model with its data and its default parameters."""
    make_model: Callable[[], nn.Module]
    read_data: Callable[[Optional[pathlib.Path]], Data]
    make_optimizer: Callable[[Iterator[nn.Parameter], float], torch.optim.Optimizer]
    lr: float
    batch: int
    test_samples: int


RECIPES = {"cnn": Recipe(Cnn, fashion_mnist, sgd, lr=0.03, batch=64, test_samples=2000),
           "deep": Recipe(Deep, fashion_mnist, sgd, lr=0.01, batch=256, test_samples=2000),
           "vgg": Recipe(Vgg, fashion_mnist, sgd, lr=0.03, batch=64, test_samples=2000),
           "charlm": Recipe(CharLm, blocks_of_text, adam, lr=0.002, batch=32, test_samples=256)}


# ---- Training ----

class Batches:
    """This rank's part of every step's batch. An epoch has as many batches as the samples fill completely."""

    def __init__(self, data: Data, batch: int, seed: int, rank: int, world: int) -> None:
        self._data, self._batch, self._seed, self._rank, self._world = data, batch, seed, rank, world
        self.steps_per_epoch = len(data.inputs) // batch
        self._epoch, self._order = -1, torch.empty(0)

    def at(self, step: int) -> Tuple[torch.Tensor, torch.Tensor]:
        epoch, place = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed(1_000_003 * self._seed + epoch)
            self._epoch, self._order = epoch, torch.randperm(len(self._data.inputs), generator=generator)
        mine = self._order[place * self._batch:(place + 1) * self._batch][self._rank::self._world]
        return self._data.inputs[mine], self._data.targets[mine]


class Trainer:
    """The model, its optimizer and the number of steps taken."""

    def __init__(self, recipe: Recipe, checkpoint: Optional[pathlib.Path], overlaps: bool = False) -> None:
        model = recipe.make_model()
        self._optimizer = recipe.make_optimizer(model.parameters(), recipe.lr)
        if overlaps:
            import spillway.torch
            self.model, self._optimizer = spillway.torch.overlap(model, self._optimizer)
        else:
            self.model = DistributedDataParallel(model)
        self._file = checkpoint / CHECKPOINT if checkpoint is not None else None
        self.step = self._saved_step = 0
        # Kept as a member, so that it is released after the model. A Gloo thread that drops the last reference to a
        # tensor waits for the GIL; in torch 1.13 the model's destructor waits for that thread while holding the GIL.
        self._counts = torch.zeros(3, dtype=torch.int64)

    def train_on(self, inputs: torch.Tensor, targets: torch.Tensor) -> float:
        self._optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(self.model(inputs).flatten(0, -2), targets.flatten())
        loss.backward()
        self._optimizer.step()
        self.step += 1
        return loss.item()

    @torch.no_grad()
    def accuracy(self, data: Data, samples: int, is_over: bool) -> Tuple[float, bool]:
        """Returns the accuracy on the first `samples` samples, split among the ranks, and whether any rank passed
        `is_over`. All ranks get the same result."""
        rank, world = dist.get_rank(), dist.get_world_size()
        inputs, targets = data.test_inputs[:samples][rank::world], data.test_targets[:samples][rank::world]
        right = sum(int((self.model.module(some).argmax(-1) == expected).sum())
                    for some, expected in zip(inputs.split(256), targets.split(256)))
        self._counts[0], self._counts[1], self._counts[2] = right, targets.numel(), is_over
        dist.all_reduce(self._counts)
        return int(self._counts[0]) / int(self._counts[1]), int(self._counts[2]) > 0

    def save(self) -> None:
        """Rank 0 writes the checkpoint atomically."""
        if self._file is None or dist.get_rank() != 0 or self.step == self._saved_step:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._file.with_suffix(".unfinished")
        unfinished.unlink(missing_ok=True)  # left by a killed job
        with unfinished.open("xb") as file:  # x: never follows a link planted by another user
            torch.save({"step": self.step, "model": self.model.module.state_dict(),
                        "optimizer_state": self._optimizer.state_dict()["state"]}, file)
        os.replace(unfinished, self._file)
        self._saved_step = self.step

    def resume(self) -> None:
        """All ranks read rank 0's file. Without one, training starts from the beginning, so a restarted job need not
        know how far it came. Settings such as the learning rate come from the script: they are plain floats, which
        torch 1.13 does not load with weights_only."""
        if self._file is None or not self._file.is_file():
            return
        saved = torch.load(self._file, weights_only=True)  # a checkpoint must not run code
        self.step = self._saved_step = saved["step"]
        self.model.module.load_state_dict(saved["model"])
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": saved["optimizer_state"]})


# ---- Output of rank 0 ----

class Journal:
    def __init__(self, log: Optional[pathlib.Path], append: bool) -> None:
        self._is_speaking = dist.get_rank() == 0
        self._has_terminal = self._is_speaking and sys.stderr.isatty()
        self._log = log.open("a" if append else "w", buffering=1) if log is not None and self._is_speaking else None

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    def write(self, event: str, **values: Any) -> None:
        if self._log is not None:
            print(json.dumps({"event": event, **values}), file=self._log)

    def say(self, text: str) -> None:
        if self._is_speaking:
            self.show("")
            print(text, flush=True)

    def show(self, text: str) -> None:
        """Replaces the progress line; does nothing without a terminal."""
        if self._has_terminal:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def show_progress(self, step: int, of: int, loss: float, step_ms: float) -> None:
        done = BAR_COLUMNS * step // of
        self.show(f"[{'#' * done}{'.' * (BAR_COLUMNS - done)}] step {step} of {of}, loss {loss:.3f}, {step_ms:.0f} ms")


class Run:
    """Runs all steps, with evaluations and checkpoints in between."""

    def __init__(self, options: argparse.Namespace, recipe: Recipe, trainer: Trainer, data: Data, batches: Batches,
                 journal: Journal) -> None:
        self._options, self._recipe, self._trainer, self._data = options, recipe, trainer, data
        self._batches, self._journal = batches, journal
        self._last_step = options.epochs * batches.steps_per_epoch
        if options.steps is not None:
            self._last_step = min(self._last_step, options.steps)
        self._step_ms: List[float] = []
        self._accuracy: Optional[float] = None
        self._start = time.monotonic()

    def to_the_end(self) -> None:
        reason = "steps" if self._last_step == self._options.steps else "epochs"
        while self._trainer.step < self._last_step:
            self._take_step()
            if self._is_time_to_evaluate():
                found = self._evaluate()
                if found:
                    reason = found
                    break
        self._trainer.save()
        self._write_end(reason)

    def _seconds(self) -> float:
        return round(time.monotonic() - self._start, 4)

    def _epochs(self) -> int:
        return self._trainer.step // self._batches.steps_per_epoch

    def _take_step(self) -> None:
        begin = time.monotonic()
        loss = self._trainer.train_on(*self._batches.at(self._trainer.step))
        step_ms = round(1000 * (time.monotonic() - begin), 3)
        self._step_ms.append(step_ms)
        self._journal.write("step", step=self._trainer.step, seconds=self._seconds(), step_ms=step_ms, loss=loss)
        self._journal.show_progress(self._trainer.step, self._last_step, loss, step_ms)

    def _is_time_to_evaluate(self) -> bool:
        step = self._trainer.step
        is_epochs_end = step % self._batches.steps_per_epoch == 0
        return is_epochs_end or step == self._last_step or step % self._options.evaluate_every == 0

    def _evaluate(self) -> str:
        """Returns why training ends here; empty if it continues."""
        is_over = self._options.seconds is not None and self._seconds() >= self._options.seconds
        self._accuracy, is_over = self._trainer.accuracy(self._data, self._recipe.test_samples, is_over)
        step, epochs, seconds = self._trainer.step, self._epochs(), self._seconds()
        self._journal.write("evaluation", step=step, seconds=seconds, epoch=epochs, accuracy=self._accuracy)
        if step % self._batches.steps_per_epoch == 0:
            self._trainer.save()
            self._journal.say(f"epoch {epochs}: accuracy {100 * self._accuracy:.1f} %, {step} steps, {seconds:.1f} s")
        target = self._options.target_accuracy
        if target is None or self._accuracy < target:
            return "seconds" if is_over else ""
        self._journal.say(f"accuracy {100 * self._accuracy:.1f} % reached after {step} steps, {seconds:.1f} s")
        return "target"

    def _write_end(self, reason: str) -> None:
        options, median = self._options, round(statistics.median(self._step_ms), 3) if self._step_ms else None
        parameters = sum(parameter.numel() for parameter in self._trainer.model.parameters())
        self._journal.write("end", step=self._trainer.step, seconds=self._seconds(), epoch=self._epochs(),
                            accuracy=self._accuracy, reason=reason, backend=dist.get_backend(), model=options.model,
                            parameters=parameters, world=dist.get_world_size(), batch=self._recipe.batch,
                            seed=options.seed, step_ms=median)
        if median is not None:
            self._journal.say(f"{len(self._step_ms)} steps of {median:.1f} ms (median), {self._seconds():.1f} s, "
                              f"accuracy {100 * (self._accuracy or 0):.1f} %")


# ---- The program ----

def positive(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains a small model with DistributedDataParallel")
    parser.add_argument("--backend", default="spillway", choices=["gloo", "spillway"], help="of torch.distributed")
    parser.add_argument("--overlap", action="store_true",
                        help="start the next forward pass while gradients travel, with spillway.torch.overlap()")
    parser.add_argument("--model", default="cnn", choices=list(RECIPES))
    parser.add_argument("--data", type=pathlib.Path, help="folder of Fashion-MNIST, or file of text")
    parser.add_argument("--epochs", type=positive, default=3)
    parser.add_argument("--steps", type=positive, help="stop after so many, those before a checkpoint included")
    parser.add_argument("--seconds", type=float, help="stop at the first evaluation after so many")
    parser.add_argument("--batch", type=positive, help="samples a step, of all ranks together")
    parser.add_argument("--lr", type=float, help="learning rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target-accuracy", type=float, metavar="SHARE", help="stop when it is reached: 0.85")
    parser.add_argument("--evaluate-every", type=positive, default=1 << 62, metavar="STEPS",
                        help="beside at the end of every epoch")
    parser.add_argument("--test-samples", type=positive, help="to evaluate with")
    parser.add_argument("--checkpoint", type=pathlib.Path, metavar="DIR", help="save there, every epoch and at the end")
    parser.add_argument("--resume", action="store_true", help="from the checkpoint, if there is one")
    parser.add_argument("--log", type=pathlib.Path, metavar="FILE", help="JSON lines")
    parser.add_argument("--threads", type=positive, default=1, help="of torch, a rank")
    options = parser.parse_args()
    if options.resume and options.checkpoint is None:
        parser.error("--resume needs --checkpoint")
    return options


def chosen_recipe(options: argparse.Namespace) -> Recipe:
    given = {name: getattr(options, name) for name in ("lr", "batch", "test_samples")}
    return RECIPES[options.model]._replace(**{name: value for name, value in given.items() if value is not None})


def launchers_variables(environment: Dict[str, str]) -> Dict[str, str]:
    """torch's variables that are not set, taken from mpirun or srun. Without a launcher the process is a world of 1."""
    rank, world = next((pair for pair in LAUNCHERS if pair[0] in environment), (None, None))
    values = {"RANK": environment.get(rank or "", "0"), "WORLD_SIZE": environment.get(world or "", "1"),
              "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    return {name: value for name, value in values.items() if name not in environment}


def join(backend: str) -> None:
    if backend == "spillway":
        import spillway.torch
    os.environ.update(launchers_variables(dict(os.environ)))
    dist.init_process_group(backend)


def main() -> None:
    options = parse_options()
    torch.set_num_threads(options.threads)
    recipe = chosen_recipe(options)
    data = recipe.read_data(options.data)  # before the ranks meet, so that missing data is reported at once
    join(options.backend)
    world = dist.get_world_size()
    if recipe.batch % world or recipe.batch > len(data.inputs):
        raise SystemExit(f"train.py: --batch {recipe.batch} must be a multiple of the {world} ranks and at most the "
                         f"{len(data.inputs)} samples there are")
    torch.manual_seed(options.seed)
    trainer = Trainer(recipe, options.checkpoint, options.overlap)
    if options.resume:
        trainer.resume()
    journal = Journal(options.log, append=options.resume)
    if trainer.step:
        journal.say(f"resumed after step {trainer.step}")
    batches = Batches(data, recipe.batch, options.seed, dist.get_rank(), world)
    Run(options, recipe, trainer, data, batches, journal).to_the_end()
    journal.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
