"""The networks that are trained. None has batch normalisation: the weights are all there is to compare between ranks."""
import time

import torch
from torch import nn


def cnn():
    """1.3 M parameters in 10 tensors, from 320 to 1.2 M elements."""
    def stage(inputs, outputs):
        return nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*stage(1, 32), *stage(32, 64), nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.Flatten(),
                         nn.Linear(128 * 7 * 7, 192), nn.ReLU(), nn.Linear(192, 10))


def perceptron(*widths):
    layers = [nn.Flatten()]
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def mlp():
    """21.3 M parameters in 8 tensors."""
    return perceptron(784, 3072, 3072, 3072, 10)


def mlp25():
    """25.2 M parameters in 10 tensors."""
    return perceptron(784, 3072, 3072, 3072, 1280, 10)


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, 3, padding=1)
        nn.init.zeros_(self.convolution.bias)
        nn.init.normal_(self.convolution.weight, std=0.03 / channels ** 0.5)

    def forward(self, x):
        return x + self.convolution(x).relu()


def deep():
    """0.3 M parameters in 70 small tensors, most of two sizes only: hard to tell apart in a fused buffer."""
    return nn.Sequential(nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(), *(Residual(16) for _ in range(16)),
                         nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(), *(Residual(32) for _ in range(15)),
                         nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10))


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + 0.1 * self.linear(x).relu()


def chain(width=96):
    """0.4 M parameters in 70 tensors, most of one shape, that cost next to nothing to train: for many steps of many runs."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, width), *(Layer(width) for _ in range(33)), nn.Linear(width, 10))


class Hold(torch.autograd.Function):
    """A layer of the paced model: backward is over at its time, and its gradient is noise, another one in each step."""
    @staticmethod
    def forward(ctx, x, weight, noise, clock, share):
        ctx.noise, ctx.clock, ctx.share = noise, clock, share
        return x + 0

    @staticmethod
    def backward(ctx, gradient):
        clock = ctx.clock
        clock["at"] += ctx.share
        grown = torch.mul(ctx.noise[0], clock["step"] % 7 - 3.1).add_(ctx.noise[1])
        time.sleep(max(0.0, clock["at"] - time.perf_counter()))
        return gradient, grown, None, None, None


class Paced(nn.Module):
    """The parameters of another model, whose computing takes `seconds` a step and no processor, as on a host with cores of its own or
    a GPU: a third forward, the rest backward, by elements."""
    def __init__(self, model, seconds, seed):
        super().__init__()
        self.model, self.seconds = model, seconds
        random = torch.Generator().manual_seed(seed)
        self.noise = [[1e-3 * torch.randn(p.shape, generator=random) for _ in range(2)] for p in model.parameters()]
        self.elements = sum(p.numel() for p in model.parameters())
        self.clock = {"at": 0.0, "step": 0}

    def forward(self, images):
        begin = time.perf_counter()
        self.clock["step"] += 1
        x = torch.zeros(len(images), 10, requires_grad=True)
        for weight, noise in zip(self.model.parameters(), self.noise):
            x = Hold.apply(x, weight, noise, self.clock, 2 / 3 * self.seconds * weight.numel() / self.elements)
        time.sleep(max(0.0, begin + self.seconds / 3 - time.perf_counter()))
        self.clock["at"] = time.perf_counter()
        return x


MODELS = {f.__name__: f for f in (cnn, mlp, mlp25, deep, chain)}
