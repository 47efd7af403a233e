import torch
from torch import nn

torch.manual_seed(25)
embed = nn.Embedding(12, 6)
decode = nn.Linear(6, 12, bias=False)
decode.weight = embed.weight
frozen = {decode}
unique = {}
for module in (embed, decode, nn.Linear(6, 6)):
    for parameter in module.parameters():
        unique.setdefault(id(parameter), parameter)
print(f"{len(unique)} parameters, {sum(module in frozen for module in (embed, decode))} frozen")
optimizer = torch.optim.SGD(list(unique.values())[:1], lr=0.1)
for _ in range(5):
    codes = torch.randint(12, (20,))
    loss = nn.functional.mse_loss(decode(embed(codes)), nn.functional.one_hot(codes, 12).float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
