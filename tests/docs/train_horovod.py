"""A training as Horovod's users write it: ten steps on random images."""
import horovod.torch as hvd
import torch

hvd.init()
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
generator = torch.Generator().manual_seed(100 + hvd.rank())
for step in range(10):
    images = torch.randn(32, 1, 28, 28, generator=generator)
    labels = images[:, 0, 14, :10].argmax(1)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
if hvd.rank() == 0:
    print(f"loss {loss.item():.3f}")
