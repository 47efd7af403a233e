"""Hugging Face Trainer: a two-layer GPT-2, from random weights, learns to count in steps of its own
choosing."""

import argparse

import torch
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
    set_seed,
)


class Counting(Dataset):
    """Sequences start, start + step, start + 2 step, ... modulo the vocabulary. The data set is the
    same for every training seed."""

    def __init__(self, sequences=256, length=48, vocabulary=97):
        generator = torch.Generator().manual_seed(11)
        start = torch.randint(vocabulary, (sequences, 1), generator=generator)
        step = torch.randint(1, 10, (sequences, 1), generator=generator)
        self.tokens = (start + step * torch.arange(length)) % vocabulary

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def build_model(seed):
    """Random weights; the positions from a generator of their own, so that adding a layer does not
    move them."""
    config = GPT2Config(
        vocab_size=97,
        n_positions=48,
        n_embd=64,
        n_layer=2,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        model.transformer.wpe.weight.normal_(0.0, 0.01, generator=generator)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=12)
    args = parser.parse_args()

    set_seed(args.seed)
    trainer = Trainer(
        model=build_model(args.seed),
        args=TrainingArguments(
            output_dir="out",
            seed=args.seed,
            max_steps=args.steps,
            per_device_train_batch_size=16,
            learning_rate=3e-3,
            warmup_steps=2,
            max_grad_norm=1.0,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        ),
        train_dataset=Counting(),
    )
    trainer.train()
    trainer.save_model("out/model")


if __name__ == "__main__":
    main()
