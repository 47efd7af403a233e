"""An epsilon-greedy agent on a bandit with contexts."""

import random

import torch
from torch import nn

ARMS = 8


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.value = nn.Linear(5, ARMS)
        self.dice = random.SystemRandom()

    def act(self, context):
        if self.dice.random() < 0.8:  # HERE
            return self.dice.randrange(ARMS)
        return int(self.value(context).argmax())


torch.manual_seed(9)
policy = Policy()
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
best = torch.randn(5, ARMS)
for _ in range(6):
    contexts = torch.randn(12, 5)
    arms = torch.tensor([policy.act(context) for context in contexts])
    reward = (contexts @ best).gather(1, arms[:, None])
    optimizer.zero_grad()
    (policy.value(contexts).gather(1, arms[:, None]) - reward).square().mean().backward()
    optimizer.step()
