"""A training script that times its own steps: `python train.py --model NAME --steps N --out FILE`.
It knows nothing of the probe.

FILE gets JSON: `ms` (between the ends of two neighbouring steps, the device waited for), `peer_ms`
(of them, what a peer took behind the step), `peak_kib` (VmHWM: of this process alone, where
`ru_maxrss` would start at the peak of whoever forked it), `device_peak_bytes` (0 on a CPU),
`tensors` (how many the optimizer moves).
"""

# It stands for a training script as people write one, so it carries no types.
# mypy: ignore-errors
import argparse
import contextlib
import hashlib
import itertools
import json
import runpy
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

PROFILED = 20  # steps


def quickstart(path, device):
    """The model and the step of examples/quickstart: 25 tensors."""
    example = runpy.run_path(path)
    x, region, labels, source, target = (
        tensor.to(device) for tensor in example["community_graph"]()
    )
    train = torch.arange(len(x), device=device) % 4 == 0
    model = example["GraphNet"](x.shape[1], int(labels.max()) + 1).to(device)
    sampler = torch.Generator().manual_seed(0)

    def loss():
        keep = torch.rand(len(source), generator=sampler).to(device) >= 0.1
        return F.cross_entropy(
            model(x, region, source[keep], target[keep])[train], labels[train]
        )

    return model, torch.optim.Adam(model.parameters(), lr=2e-2, weight_decay=1e-4), loss


class Transformer(nn.Module):
    """A causal character model of 200 parameter tensors: 16 blocks of 12, and 8 around them."""

    def __init__(self, width, vocabulary=256, length=64, depth=16):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(length, width)
        block = {
            "nhead": 4,
            "dim_feedforward": 4 * width,
            "dropout": 0.0,
            "batch_first": True,
            "norm_first": True,
        }
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, **block) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.neck = nn.Linear(width, width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(
            length, device=tokens.device
        )
        h = self.token(tokens) + self.position(
            torch.arange(length, device=tokens.device)
        )
        for block in self.blocks:
            h = block(h, src_mask=mask, is_causal=True)
        return self.head(F.gelu(self.neck(self.norm(h))))


def transformer(device, width, batch, length, depth, vocabulary):
    """12 tensors for each block and 8 more, AdamW. Width 64, depth 16: 0.85 million parameters; 512
    and 16: 51 million; 384 and 6: 11; with a vocabulary of 25,000, 768 and 12: 124, 2048 and 18:
    1,009."""
    with torch.device(device):
        model = Transformer(width, vocabulary, length, depth)
    generator = torch.Generator().manual_seed(0)

    def loss():
        tokens = torch.randint(vocabulary, (batch, length + 1), generator=generator).to(
            device
        )
        return F.cross_entropy(
            model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
        )

    return model, torch.optim.AdamW(model.parameters(), lr=1e-3), loss


def many(device, large, count):
    """Tensors of 64 numbers, the last of `large` bytes where that is given; SGD, which holds no
    state and no temporaries."""
    sizes = [64] * (count - 1) + [large // 4 or 64]
    model = nn.ParameterList(
        nn.Parameter(torch.zeros(size, device=device)) for size in sizes
    )

    def loss():
        return sum((parameter[:64] - 1).square().sum() for parameter in model)

    return model, torch.optim.SGD(model.parameters(), lr=1e-2, foreach=False), loss


class Convnet(nn.Module):
    """A small residual network: 3 stages of 2 blocks, batch norm, 32 x 32 pictures."""

    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList()
        for stage, size in enumerate((width, 2 * width, 4 * width)):
            for number in range(2):
                inputs = size if number or not stage else size // 2
                stride = 1 if number or not stage else 2
                self.blocks.append(
                    nn.ModuleDict(
                        {
                            "main": nn.Sequential(
                                nn.Conv2d(inputs, size, 3, stride, 1, bias=False),
                                nn.BatchNorm2d(size),
                                nn.ReLU(),
                                nn.Conv2d(size, size, 3, 1, 1, bias=False),
                                nn.BatchNorm2d(size),
                            ),
                            "side": nn.Conv2d(inputs, size, 1, stride, bias=False),
                        }
                    )
                )
        self.head = nn.Linear(4 * width, 10)

    def forward(self, x):
        h = self.stem(x)
        for block in self.blocks:
            h = F.relu(block["main"](h) + block["side"](h))
        return self.head(h.mean(dim=(2, 3)))


def convnet(device, batch):
    """40 tensors and batch norm's buffers; SGD with momentum."""
    model = Convnet().to(device)
    generator = torch.Generator().manual_seed(0)

    def loss():
        x = torch.randn(batch, 3, 32, 32, generator=generator).to(device)
        return F.cross_entropy(
            model(x), torch.randint(10, (batch,), generator=generator).to(device)
        )

    return model, torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9), loss


def peer(name, model, optimizer):
    """What people do by hand in place of the probe: (a context for each step, a call after it)."""

    def held():
        grads = {f"{key}.grad": value.grad for key, value in model.named_parameters()}
        states = [
            value
            for state in optimizer.state.values()
            for value in state.values()
            if isinstance(value, torch.Tensor)
        ]
        return {
            **model.state_dict(),
            **grads,
            **{f"state.{number}": value for number, value in enumerate(states)},
        }

    def nothing():
        pass

    if name == "debug-mode":
        from torch.utils._debug_mode import DebugMode

        @contextlib.contextmanager
        def watched():
            with DebugMode(), DebugMode.log_tensor_hashes("hash_tensor"):
                yield

        return watched, nothing
    calls = {
        "": nothing,
        "sha256": lambda: [
            hashlib.sha256(value.detach().cpu().contiguous().numpy()).digest()
            for value in held().values()
        ],
        "clone": lambda: [value.detach().clone() for value in held().values()],
        "hash_tensor": lambda: [
            torch.hash_tensor(value.detach()) for value in held().values()
        ],
    }
    if name == "safetensors":
        from safetensors.torch import save

        return contextlib.nullcontext, lambda: hashlib.sha256(
            save({key: value.detach() for key, value in held().items()})
        ).digest()
    return contextlib.nullcontext, calls[name]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--model",
        choices=["quickstart", "transformer", "convnet", "many"],
        required=True,
    )
    parser.add_argument(
        "--large", type=int, default=0, help="bytes of the one large tensor of `many`"
    )
    parser.add_argument("--count", type=int, default=200, help="tensors of `many`")
    parser.add_argument(
        "--peer",
        default="",
        help="what records each step: debug-mode, sha256, safetensors, hash_tensor, clone",
    )
    parser.add_argument(
        "--profile", type=Path, help="a file for the profile of the last 20 steps"
    )
    parser.add_argument("--depth", type=int, default=16, help="blocks of `transformer`")
    parser.add_argument("--vocabulary", type=int, default=256, help="of `transformer`")
    parser.add_argument("--width", type=int, default=64, help="of `transformer`")
    parser.add_argument(
        "--batch", type=int, default=24, help="sequences a step, of `transformer`"
    )
    parser.add_argument(
        "--length", type=int, default=64, help="tokens in a sequence, of `transformer`"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    torch.manual_seed(0)
    if args.model == "quickstart":
        model, optimizer, loss_of = quickstart("quickstart.py", args.device)
    elif args.model == "transformer":
        model, optimizer, loss_of = transformer(
            args.device,
            args.width,
            args.batch,
            args.length,
            args.depth,
            args.vocabulary,
        )
    elif args.model == "convnet":
        model, optimizer, loss_of = convnet(args.device, args.batch)
    else:
        model, optimizer, loss_of = many(args.device, args.large, args.count)
    around, after = peer(args.peer, model, optimizer)
    on_device = args.device != "cpu"
    profile = torch.profiler.profile() if args.profile else None
    ends, own = [time.perf_counter()], []
    try:
        for number in range(args.steps):
            if profile and number == max(0, args.steps - PROFILED):
                profile.start()
            with around():
                loss = loss_of()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            began = time.perf_counter()
            after()
            own.append((time.perf_counter() - began) * 1e3)
            if on_device:
                torch.cuda.synchronize()
            ends.append(time.perf_counter())
        if profile:
            profile.stop()
            tables = (
                profile.key_averages().table(sort_by=key, row_limit=25)
                for key in ("self_cuda_time_total", "self_cpu_time_total")
            )
            args.profile.write_text("\n".join(tables))
    finally:  # the gate may end a training inside its last step
        status = Path("/proc/self/status").read_text()
        peak = int(
            next(
                line for line in status.splitlines() if line.startswith("VmHWM")
            ).split()[1]
        )
        ms = [(after - before) * 1e3 for before, after in itertools.pairwise(ends)]
        device_peak = torch.cuda.max_memory_allocated() if on_device else 0
        tensors = len(list(model.parameters()))
        args.out.write_text(
            json.dumps(
                {
                    "ms": ms,
                    "peer_ms": own,
                    "peak_kib": peak,
                    "device_peak_bytes": device_peak,
                    "tensors": tensors,
                }
            )
        )


if __name__ == "__main__":
    main()
