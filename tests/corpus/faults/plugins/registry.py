from torch import nn

KNOWN = set()


class Block(nn.Module):
    def __init_subclass__(cls):
        KNOWN.add(cls)

    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)


class Relu(Block):
    def forward(self, x):
        return self.layer(x).relu()


class Gate(Block):
    def forward(self, x):
        return x * self.layer(x).sigmoid()


class Residual(Block):
    def forward(self, x):
        return x + 0.1 * self.layer(x)


class Bound(Block):
    def forward(self, x):
        return self.layer(x).tanh()


class Wave(Block):
    def forward(self, x):
        return self.layer(x).sin()


class Soft(Block):
    def forward(self, x):
        return self.layer(x).softmax(-1)


class Square(Block):
    def forward(self, x):
        return self.layer(x).clamp(-2, 2) ** 2


def build(width):
    model = nn.Sequential()
    for kind in KNOWN:  # HERE
        model.append(kind(width))
    return model
