#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DDP under Lightning over a backend of your choice, on two CPU ranks.

    python3 lightning_ddp.py spillway|gloo
"""
import sys

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, TensorDataset

import spillway.torch  # registers the backend


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.Sequential(torch.nn.Linear(20, 40), torch.nn.ReLU(), torch.nn.Linear(40, 1))

    def loss(self, batch):
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.layers(inputs), targets)

    def training_step(self, batch, _):
        loss = self.loss(batch)
        self.log("loss", loss, on_epoch=True, sync_dist=True)
        self.log("step", torch.tensor(self.global_step), on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.loss(batch), on_epoch=True, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


def main():
    inputs = torch.randn(256, 20, generator=torch.Generator().manual_seed(0))
    batches = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=16)
    trainer = lightning.Trainer(accelerator="cpu", devices=2, max_epochs=3, logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, strategy=DDPStrategy(process_group_backend=sys.argv[1]))
    trainer.fit(Model(), batches, batches)
    if trainer.is_global_zero:
        print({name: float(value) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
