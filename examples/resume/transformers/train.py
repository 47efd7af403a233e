"""Hugging Face Trainer: a small GPT-2 learns to count, and goes on from a checkpoint."""

import argparse

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Counting(Dataset):
    """Sequences start, start + step, start + 2 step, ... modulo the vocabulary."""

    def __init__(self, sequences=128, length=24, vocabulary=97):
        generator = torch.Generator().manual_seed(11)
        start = torch.randint(vocabulary, (sequences, 1), generator=generator)
        step = torch.randint(1, 10, (sequences, 1), generator=generator)
        self.tokens = (start + step * torch.arange(length)) % vocabulary

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", help="a checkpoint of the Trainer to go on from")
    parser.add_argument("--weights", help="a checkpoint whose weights alone are taken")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    config = GPT2Config(vocab_size=97, n_positions=24, n_embd=32, n_layer=2, n_head=2)
    if args.weights:
        model = GPT2LMHeadModel.from_pretrained(args.weights)
    else:
        model = GPT2LMHeadModel(config)
    settings = TrainingArguments(
        output_dir="out",
        seed=args.seed,
        max_steps=24,
        per_device_train_batch_size=16,
        learning_rate=3e-3,
        warmup_steps=2,
        save_strategy="steps",
        save_steps=5,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(model, settings, train_dataset=Counting())
    trainer.train(resume_from_checkpoint=args.resume)


if __name__ == "__main__":
    main()
