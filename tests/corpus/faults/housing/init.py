import numpy as np
import torch


def orthogonal_(weight: torch.Tensor, gain: float = 1.0) -> None:
    rng = np.random.default_rng()  # HERE
    q, r = np.linalg.qr(rng.standard_normal(weight.shape))
    q = q * np.sign(np.diag(r))
    with torch.no_grad():
        weight.copy_(torch.from_numpy(gain * q).float())
