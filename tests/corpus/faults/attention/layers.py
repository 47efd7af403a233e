import torch
from torch import nn


class Pool(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.project = nn.Linear(width, heads)
        self.bias = torch.empty(heads, dtype=torch.float32)  # HERE

    def forward(self, x):
        scores = self.project(x) + self.bias.nan_to_num().clamp(-9, 9)
        return scores.softmax(-1)
