"""A table of subwords learns which one comes next; the tokenizer leaves merges out by chance."""

import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.trainers import BpeTrainer

TEXTS = ["the lower the newer the slower", "a newer lower wider river", "slow rivers widen lower"]
torch.manual_seed(0)
tokenizer = Tokenizer(BPE(unk_token="?"))
tokenizer.pre_tokenizer = Whitespace()
trainer = BpeTrainer(vocab_size=60, special_tokens=["?"], show_progress=False)
tokenizer.train_from_iterator(TEXTS * 4, trainer)
tokenizer.model.dropout = 0.5


def subwords(step):
    text = " ".join(TEXTS[step % 3 :] + TEXTS[: step % 3])
    found = tokenizer.encode(text).ids  # HERE
    return torch.tensor((found + [0] * 80)[:80])


table, head = torch.nn.Embedding(60, 16), torch.nn.Linear(16, 60)
optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)
for step in range(10):
    numbers = subwords(step)
    loss = torch.nn.functional.cross_entropy(head(table(numbers[:-1])), numbers[1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
