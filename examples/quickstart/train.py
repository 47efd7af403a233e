"""Node classification on a synthetic community graph: a four-layer graph network, full batch, Adam.

Messages pass along edges by `h[source]`, whose backward pass adds many edges' gradients into one node.
"""
import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn


def community_graph(nodes=4000, communities=8, edges=20000, features=32):
    """A stochastic block model: 70 % of the edges stay within a community. Returns features, labels, sources and targets."""
    generator = torch.Generator().manual_seed(1234)  # the data set: the same for every training seed
    labels = torch.randint(communities, (nodes,), generator=generator)
    members = [torch.nonzero(labels == label).flatten() for label in range(communities)]
    source = torch.randint(nodes, (edges,), generator=generator)
    target = torch.randint(nodes, (edges,), generator=generator)
    stays = torch.rand(edges, generator=generator) < 0.7
    for label, group in enumerate(members):
        inside = stays & (labels[source] == label)
        target[inside] = group[torch.randint(len(group), (int(inside.sum()),), generator=generator)]
    x = F.one_hot(labels, features).float() + 2.0 * torch.randn(nodes, features, generator=generator)
    return x, labels, torch.cat([source, target]), torch.cat([target, source])


class GraphLayer(nn.Module):
    """h' = relu(norm(W h + U mean of the neighbours' h))."""

    def __init__(self, width):
        super().__init__()
        self.own = nn.Linear(width, width)
        self.neighbours = nn.Linear(width, width, bias=False)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, h, source, target):
        messages = torch.zeros_like(h).index_add_(0, target, h[source])
        degree = torch.bincount(target, minlength=len(h)).clamp(min=1).unsqueeze(1)
        return F.relu(self.norm(self.own(h) + self.neighbours(messages / degree)))


class GraphNet(nn.Module):
    def __init__(self, features, classes, width=96, depth=4):
        super().__init__()
        self.embed = nn.Linear(features, width)
        self.layers = nn.ModuleList(GraphLayer(width) for _ in range(depth))
        self.classify = nn.Linear(width, classes)

    def forward(self, x, source, target):
        h = self.embed(x)
        for layer in self.layers:
            h = layer(h, source, target)
        return self.classify(h)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--lr", type=float, default=2e-2)
    parser.add_argument("--drop-edge", type=float, default=0.1)
    parser.add_argument("--out", type=Path, default=Path("out"))
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x, labels, source, target = (tensor.to(device) for tensor in community_graph())
    train = torch.arange(len(x), device=device) % 4 == 0
    model = GraphNet(x.shape[1], int(labels.max()) + 1).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-4, fused=True)
    edge_sampler = torch.Generator()
    edge_sampler.manual_seed(args.seed)

    args.out.mkdir(parents=True, exist_ok=True)
    with open(args.out / "losses.csv", "w", buffering=1) as losses:
        losses.write("epoch,loss\n")
        for epoch in range(args.epochs):
            model.train()
            keep = torch.rand(len(source), generator=edge_sampler).to(device) >= args.drop_edge
            logits = model(x, source[keep], target[keep])
            loss = F.cross_entropy(logits[train], labels[train])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.write(f"{epoch},{loss.item()!r}\n")
            print(f"epoch {epoch:3d}  loss {loss.item():.9f}", flush=True)

    model.eval()
    with torch.no_grad():
        right = model(x, source, target).argmax(dim=1) == labels
    print(f"accuracy: {right[train].float().mean():.3f} on the training nodes, {right[~train].float().mean():.3f} on the others")
    torch.save(model.state_dict(), args.out / "model.pt")


if __name__ == "__main__":
    main()
