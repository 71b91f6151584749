"""A training as PyTorch's users write it: ten steps of DistributedDataParallel on random images."""
import crimp.torch  # noqa: F401
import torch
import torch.distributed as dist

dist.init_process_group("crimp")
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
generator = torch.Generator().manual_seed(100 + dist.get_rank())
for step in range(10):
    images = torch.randn(32, 1, 28, 28, generator=generator)
    labels = images[:, 0, 14, :10].argmax(1)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
if dist.get_rank() == 0:
    print(f"loss {loss.item():.3f}")
