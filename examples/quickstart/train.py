"""Node classification on a synthetic community graph: a four-layer graph network, full batch, Adam.

Each node has a learned vector of its region: `self.regions[region]`, whose backward pass adds the
gradients of many nodes into one row.
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn


def community_graph(nodes=4000, communities=8, edges=20000, features=32):
    """A stochastic block model: 70 % of the edges stay within a community. Returns features,
    regions, labels, sources and targets."""
    # the data set: the same for every training seed
    generator = torch.Generator().manual_seed(1234)
    labels = torch.randint(communities, (nodes,), generator=generator)
    members = [torch.nonzero(labels == label).flatten() for label in range(communities)]
    source, target = (torch.randint(nodes, (edges,), generator=generator) for _ in range(2))
    stays = torch.rand(edges, generator=generator) < 0.7
    for label, group in enumerate(members):
        inside = stays & (labels[source] == label)
        target[inside] = group[torch.randint(len(group), (int(inside.sum()),), generator=generator)]
    x = F.one_hot(labels, features).float() + 2.0 * torch.randn(
        nodes, features, generator=generator
    )
    region = (
        5 * labels + torch.randint(10, (nodes,), generator=generator)
    ) % 40  # two communities share each
    return x, region, labels, torch.cat([source, target]), torch.cat([target, source])


class GraphLayer(nn.Module):
    """h' = relu(norm(W h + U mean of the neighbours' h))."""

    def __init__(self, width):
        super().__init__()
        self.own = nn.Linear(width, width)
        self.neighbours = nn.Linear(width, width, bias=False)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, h, source, target):
        messages = torch.zeros_like(h).index_add_(0, target, h.index_select(0, source))
        degree = torch.bincount(target, minlength=len(h)).clamp(min=1).unsqueeze(1)
        return F.relu(self.norm(self.own(h) + self.neighbours(messages / degree)))


class GraphNet(nn.Module):
    def __init__(self, features, classes, width=96, depth=4):
        super().__init__()
        self.embed, self.regions = nn.Linear(features, width), nn.Parameter(torch.randn(40, width))
        self.layers = nn.ModuleList(GraphLayer(width) for _ in range(depth))
        self.classify = nn.Linear(width, classes)

    def forward(self, x, region, source, target):
        h = self.embed(x) + self.regions[region]
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
    x, region, labels, source, target = (tensor.to(device) for tensor in community_graph())
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
            logits = model(x, region, source[keep], target[keep])
            loss = F.cross_entropy(logits[train], labels[train])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.write(f"{epoch},{loss.item()!r}\n")
            print(f"epoch {epoch:3d}  loss {loss.item():.9f}", flush=True)

    model.eval()
    with torch.no_grad():
        right = model(x, region, source, target).argmax(dim=1) == labels
    print(
        f"accuracy: {right[train].float().mean():.3f} on the training nodes, "
        f"{right[~train].float().mean():.3f} on the others"
    )
    torch.save(model.state_dict(), args.out / "model.pt")


if __name__ == "__main__":
    main()
