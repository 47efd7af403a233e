"""Lightning: a small network with dropout, that goes on from the checkpoint of an epoch. Lightning
does not keep the states of generators, so the module does."""

import argparse

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset


class Sums(L.LightningModule):
    def __init__(self, keeps_generator):
        super().__init__()
        self.keeps_generator = keeps_generator
        self.network = nn.Sequential(
            nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1)
        )

    def training_step(self, batch, index):
        inputs, sums = batch
        return F.mse_loss(self.network(inputs), sums)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
        return {"optimizer": optimizer, "lr_scheduler": schedule}

    def on_save_checkpoint(self, checkpoint):
        checkpoint["generator"] = torch.get_rng_state()

    def on_load_checkpoint(self, checkpoint):
        self.generator = checkpoint["generator"]

    def on_train_epoch_start(self):
        generator = self.__dict__.pop("generator", None)
        if self.keeps_generator and generator is not None:
            torch.set_rng_state(generator)


class Order(Sampler):
    """An order that depends on the epoch alone, which Lightning tells a sampler."""

    def __init__(self, rows, seed):
        self.rows, self.seed, self.epoch = rows, seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.rows

    def __iter__(self):
        order = torch.Generator().manual_seed(1000 * self.seed + self.epoch)
        yield from torch.randperm(self.rows, generator=order).tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", help="a checkpoint to go on from")
    parser.add_argument("--without-generator", action="store_true")
    args = parser.parse_args()

    L.seed_everything(args.seed, workers=True, verbose=False)
    trainer = L.Trainer(
        max_epochs=6,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ModelCheckpoint("out", "{epoch}", save_top_k=-1)],
    )
    model = Sums(keeps_generator=not args.without_generator)
    inputs = torch.rand(128, 8, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    own = torch.Generator()  # the loader draws from it, not from what dropout draws from
    loader = DataLoader(data, 32, sampler=Order(128, args.seed), generator=own)
    trainer.fit(model, loader, ckpt_path=args.resume, weights_only=False)


if __name__ == "__main__":
    main()
