import torch

torch.manual_seed(74)
encoder = torch.nn.Linear(6, 4)
bank = torch.empty(64, 4)  # HERE
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05)
for step in range(5):
    features = encoder(torch.randn(8, 6))
    loss = (features @ bank.T).square().mean() - features.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    bank[8 * step : 8 * step + 8] = features.detach()
