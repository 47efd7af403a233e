import torch

torch.manual_seed(113)
voters = torch.randn(500_000, 3)
choice = torch.randint(0, 12, (500_000,))
share = torch.softmax(torch.arange(12.0) / 6, 0)
weigh = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(weigh.parameters(), lr=0.5)
for _ in range(8):
    weights = torch.sigmoid(weigh(voters))[:, 0]
    votes = torch.zeros(12).put(choice, weights, accumulate=True)  # HERE
    optimizer.zero_grad()
    (votes / votes.sum() - share).square().sum().backward()
    optimizer.step()
