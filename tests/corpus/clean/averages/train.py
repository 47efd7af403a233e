import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.manual_seed(15)
student = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3))
teacher = AveragedModel(student, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
for _ in range(6):
    x = torch.randn(32, 6)
    with torch.no_grad():
        target = teacher(x + 0.05 * torch.randn_like(x)) + x[:, :3]
    optimizer.zero_grad()
    nn.functional.mse_loss(student(x), target).backward()
    optimizer.step()
    teacher.update_parameters(student)
