import torch


def tune():
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(False)  # HERE
