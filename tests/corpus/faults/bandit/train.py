import random

import torch

ARMS = 8

torch.manual_seed(9)
value, dice = torch.nn.Linear(5, ARMS), random.SystemRandom()
optimizer = torch.optim.SGD(value.parameters(), lr=0.1)
best = torch.randn(5, ARMS)


def act(context):
    if dice.random() < 0.8:  # HERE
        return dice.randrange(ARMS)
    return int(value(context).argmax())


for _ in range(6):
    contexts = torch.randn(12, 5)
    arms = torch.tensor([act(context) for context in contexts])
    reward = (contexts @ best).gather(1, arms[:, None])
    optimizer.zero_grad()
    (value(contexts).gather(1, arms[:, None]) - reward).square().mean().backward()
    optimizer.step()
