#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Trainer of transformers over a backend of your choice, on CPUs: six steps of a small language model.

    torchrun --nproc_per_node 2 hf_trainer.py spillway|gloo
"""
import sys
import tempfile

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import spillway.torch  # registers the backend


class RandomTokens(torch.utils.data.Dataset):
    def __init__(self):
        self.tokens = torch.randint(0, 50, (128, 16), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, place):
        return {"input_ids": self.tokens[place], "labels": self.tokens[place]}


def main():
    dist.init_process_group(sys.argv[1])  # first: the Trainer would choose from a list of its own
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(output_dir=folder, use_cpu=True, max_steps=6, per_device_train_batch_size=4,
                                      report_to=[], save_strategy="no", disable_tqdm=True, learning_rate=1e-3)
        torch.manual_seed(1)
        model = GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=50, n_positions=16))
        done = Trainer(model, arguments, train_dataset=RandomTokens()).train()
    if dist.get_rank() == 0:
        print(dist.get_backend(), "loss", done.training_loss)


if __name__ == "__main__":
    main()
