import torch
from torch import nn

torch.manual_seed(111)
of_film, of_viewer = nn.Parameter(torch.zeros(40)), nn.Parameter(torch.zeros(500, 1))
film, viewer = torch.randint(0, 40, (400_000,)), torch.randint(0, 500, (400_000,))
stars = torch.randint(1, 6, (400_000,)).float()
optimizer = torch.optim.SGD([of_film, of_viewer], lr=2.0)
for _ in range(8):
    optimizer.zero_grad()
    by_viewer = nn.functional.embedding(viewer, of_viewer)[:, 0]
    guess = by_viewer + of_film[film]  # HERE
    (guess - stars).square().mean().backward()
    optimizer.step()
