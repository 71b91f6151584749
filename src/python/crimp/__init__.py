"""Crimp for Python. `import crimp.torch` adds the torch.distributed backend "crimp"."""
__version__ = "0.1.0"
