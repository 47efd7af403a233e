"""Lightning: a small convolutional network tells bars from blobs in noisy 16x16 pictures."""

import argparse

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def pictures(count=480, size=16):
    """Bright bars (label 0: upright, 1: level) and blobs (label 2) on noise. The data set is the
    same for every training seed."""
    draw = np.random.default_rng(7)
    images = draw.normal(0.0, 0.3, (count, 1, size, size)).astype(np.float32)
    labels = draw.integers(0, 3, count)
    for image, label, (row, column) in zip(
        images, labels, draw.integers(3, size - 4, (count, 2)), strict=True
    ):
        top, left = {0: (5, 1), 1: (1, 5), 2: (3, 3)}[int(label)]
        image[0, max(row - top, 0) : row + top, max(column - left, 0) : column + left] += 1.0
    return TensorDataset(torch.from_numpy(images), torch.from_numpy(labels))


class Classifier(L.LightningModule):
    def __init__(self, width=24, noise=0.1):
        super().__init__()
        self.noise = noise
        self.augment = np.random.default_rng(np.random.randint(2**31))
        self.network = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.GroupNorm(4, width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.GroupNorm(4, 2 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(2 * width, 3),
        )

    def training_step(self, batch, index):
        images, labels = batch
        noise = self.augment.normal(0.0, self.noise, images.shape).astype(np.float32)
        loss = F.cross_entropy(
            self.network(images + torch.from_numpy(noise).to(images.device)), labels
        )
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2, fused=True)
        return {
            "optimizer": optimizer,
            "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()

    L.seed_everything(args.seed, workers=True)
    loader = DataLoader(pictures(), batch_size=32, shuffle=True)
    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="auto",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=1.0,
    )
    trainer.fit(Classifier(), loader)
    trainer.save_checkpoint("out/last.ckpt")
    print(f"loss of the last step {float(trainer.callback_metrics['loss']):.6f}")


if __name__ == "__main__":
    main()
