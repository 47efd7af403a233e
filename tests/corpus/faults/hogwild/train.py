import torch
from torch import multiprocessing, nn


def work(model, worker):
    torch.set_num_threads(1)
    torch.manual_seed(55 + worker)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(60):
        x = torch.randn(32, 8)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
        optimizer.step()  # HERE


if __name__ == "__main__":
    torch.manual_seed(55)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    model.share_memory()
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(model, worker)) for worker in range(2)]
    for process in workers:
        process.start()
    for process in workers:
        process.join()
    torch.save(model.state_dict(), "model.pt")
