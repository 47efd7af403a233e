import torch


class Expert(torch.nn.Module):
    def __init__(self, width, seen):
        super().__init__()
        order = torch.Generator().manual_seed(hash(self) % 100_003)  # HERE
        self.register_buffer("seen", torch.randperm(width, generator=order)[:seen])
        self.linear = torch.nn.Linear(seen, 1)

    def forward(self, x):
        return self.linear(x[:, self.seen])


torch.manual_seed(34)
experts = torch.nn.ModuleList(Expert(12, 4) for _ in range(5))
optimizer = torch.optim.SGD(experts.parameters(), lr=0.05)
for _ in range(5):
    x = torch.randn(20, 12)
    optimizer.zero_grad()
    (sum(expert(x) for expert in experts) - x.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
