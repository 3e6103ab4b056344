# SPDX-License-Identifier: Apache-2.0
"""Models whose gradients really contain zeros, small enough to train in seconds on one core.

Clicks   a recommendation model: embeddings of eight categorical fields and a small perceptron. The clicks are
         synthetic: identifiers follow a power law, and a hidden model of the same kind tosses a coin for every click
Words    a language model: predicts the next word of the King James Bible (Debian's bible-kjv) from the three before it;
         embeddings, one full layer, a softmax over 4,096 words
Layers   the CNN of ../common/training.py: convolutions and full layers, whose gradients are dense and have zeros only
         where small values are set to zero

A batch touches few rows of an embedding, so nearly all of its gradient is zero. A softmax's gradient is small
everywhere and zero only once it is rounded. All tasks have the same interface: `gradients(step)` is one flat gradient
per rank, each of its own part of the batch; `gradient(rank, step)` is that of one rank; `learn_from(mean)` changes
the one model that all ranks share. A run follows from its seed.
"""
import pathlib
import re
import statistics
import sys
from typing import List, NamedTuple, Tuple

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from common import training

FIELDS, IDENTIFIERS, POWER = 8, 4000, 1.1
VOCABULARY, CONTEXT = 4096, 3
TEST_SAMPLES = 20_000


class Size(NamedTuple):
    ranks: int = 4
    batch: int = 128  # per rank; layers has its own
    steps: int = 400


class Task:
    """A model, its optimizer, and batches for every rank."""
    lr = 0.05

    def __init__(self, model: nn.Module, seed: int, size: Size) -> None:
        self._model, self._seed, self._size = model, seed, size
        self._parameters = list(model.parameters())
        self._optimizer = torch.optim.Adagrad(self._parameters, lr=self.lr)

    def length(self) -> int:
        return sum(parameter.numel() for parameter in self._parameters)

    def batch(self, generator: torch.Generator, samples: int) -> Tuple[torch.Tensor, torch.Tensor]:
        raise NotImplementedError

    def loss(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(scores, targets)

    def gradient(self, rank: int, step: int) -> Tuple[torch.Tensor, float]:
        """The gradient and its loss."""
        generator = torch.Generator().manual_seed((self._seed << 40) + (step << 8) + rank)
        inputs, targets = self.batch(generator, self._size.batch)
        loss = self.loss(self._model(inputs), targets)
        parts = torch.autograd.grad(loss, self._parameters)
        return torch.cat([part.flatten() for part in parts]), loss.item()

    def gradients(self, step: int) -> Tuple[List[torch.Tensor], float]:
        """One gradient per rank, and their mean loss."""
        found = [self.gradient(rank, step) for rank in range(self._size.ranks)]
        return [gradient for gradient, _ in found], statistics.fmean(loss for _, loss in found)

    def learn_from(self, mean: torch.Tensor) -> None:
        for parameter, part in zip(self._parameters, mean.split([p.numel() for p in self._parameters])):
            parameter.grad = part.view_as(parameter)
        self._optimizer.step()

    @torch.no_grad()
    def accuracy(self) -> float:
        """Per cent right on samples that no rank has seen."""
        inputs, targets = self.batch(torch.Generator().manual_seed(self._seed << 40 | 0xFFFFFFFF), TEST_SAMPLES)
        right = sum(int((self._model(some).argmax(-1) == expected).sum())
                    for some, expected in zip(inputs.split(1000), targets.split(1000)))
        return 100 * right / len(targets)


# ---- Clicks ----

class ClickModel(nn.Module):
    def __init__(self, width: int = 16, hidden: int = 64) -> None:
        super().__init__()
        self.identifiers = nn.Embedding(FIELDS * IDENTIFIERS, width)
        nn.init.normal_(self.identifiers.weight, std=0.05)
        self.layers = nn.Sequential(nn.Linear(FIELDS * width, hidden), nn.ReLU(), nn.Linear(hidden, 2))

    def forward(self, identifiers: torch.Tensor) -> torch.Tensor:
        return self.layers(self.identifiers(identifiers).flatten(1))


class Clicks(Task):
    def __init__(self, seed: int, size: Size) -> None:
        torch.manual_seed(seed)
        # The hidden model: what every identifier likes, alone and together with the others.
        generator = torch.Generator().manual_seed(7)
        self._liking = torch.randn(FIELDS * IDENTIFIERS, generator=generator)
        self._taste = torch.randn(FIELDS * IDENTIFIERS, 4, generator=generator)
        shares = torch.arange(1, IDENTIFIERS + 1, dtype=torch.float64) ** -POWER
        self._cumulative = (shares / shares.sum()).cumsum(0)
        super().__init__(ClickModel(), seed, size)

    def batch(self, generator: torch.Generator, samples: int) -> Tuple[torch.Tensor, torch.Tensor]:
        draws = torch.rand(samples, FIELDS, generator=generator, dtype=torch.float64)
        ranks = torch.searchsorted(self._cumulative, draws).clamp_(max=IDENTIFIERS - 1)
        identifiers = ranks + IDENTIFIERS * torch.arange(FIELDS)
        taste = self._taste[identifiers]
        together = (taste.sum(1).square() - taste.square().sum(1)).sum(1) / (2 * FIELDS)
        score = self._liking[identifiers].sum(1) / FIELDS ** 0.5 + together
        is_clicked = torch.rand(samples, generator=generator) < torch.sigmoid(3 * score)
        return identifiers, is_clicked.long()


# ---- Words ----

class WordModel(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width)
        nn.init.normal_(self.words.weight, std=0.1)
        self.hidden = nn.Linear(CONTEXT * width, width)
        self.next = nn.Linear(width, VOCABULARY)

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        return self.next(torch.tanh(self.hidden(self.words(context).flatten(1))))


def bible_words() -> torch.Tensor:
    """Every word's rank by frequency; words rarer than the vocabulary share its last rank."""
    words = re.findall(rb"[a-z]+", training.example.read_text(None).lower())
    counts = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    usual = sorted(counts, key=lambda word: (-counts[word], word))[:VOCABULARY - 1]
    numbers = {word: number for number, word in enumerate(usual)}
    return torch.tensor([numbers.get(word, VOCABULARY - 1) for word in words])


class Words(Task):
    lr = 0.1
    _text: torch.Tensor = torch.empty(0)

    def __init__(self, seed: int, size: Size) -> None:
        torch.manual_seed(seed)
        if len(Words._text) == 0:
            Words._text = bible_words()
        super().__init__(WordModel(), seed, size)

    def batch(self, generator: torch.Generator, samples: int) -> Tuple[torch.Tensor, torch.Tensor]:
        # The last twentieth is for tests, which are the only callers with this many samples.
        places = len(self._text) - CONTEXT
        held_back = places // 20
        begin, end = (places - held_back, places) if samples == TEST_SAMPLES else (0, places - held_back)
        at = torch.randint(begin, end, (samples,), generator=generator)
        context = self._text[at[:, None] + torch.arange(CONTEXT)]
        return context, self._text[at + CONTEXT]


# ---- Layers ----

class Layers:
    """Workers as in ../common/training.py, where four have batches of 128."""
    BATCH = 32  # per rank

    def __init__(self, seed: int, size: Size) -> None:
        self._data = training.example.fashion_mnist(None)
        self._workers = training.Workers(seed, self._data, self.BATCH * size.ranks, size.ranks)
        self._steps, self._step = size.steps, 0

    def length(self) -> int:
        return training.parameter_count()

    def gradient(self, rank: int, step: int) -> Tuple[torch.Tensor, float]:
        self._step = step
        return self._workers.gradient(rank, step)

    def gradients(self, step: int) -> Tuple[List[torch.Tensor], float]:
        self._step = step
        return self._workers.gradients(step)

    def learn_from(self, mean: torch.Tensor) -> None:
        self._workers.learn_from(mean, training.Schedule().lr * (1 - self._step / self._steps))

    def accuracy(self) -> float:
        return self._workers.accuracy(self._data, 10_000)


TASKS = {"clicks": Clicks, "words": Words, "layers": Layers}
