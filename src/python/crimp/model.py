"""The tensors of a PyTorch checkpoint as the list that `crimp plan --model` reads.

    python3 -m crimp.model checkpoint.pt >model.txt

Shapes only: no values are kept, and nothing of the file is run (torch.load with weights_only).
"""
import sys

USAGE = "usage: python3 -m crimp.model CHECKPOINT [KEY]     KEY: of the state dict in it, as in 'model' (found by itself where there is one)"


def tensors_of(state, key=None):
    """Names and tensors of a state dict, or of the one that a checkpoint holds under a key."""
    import torch

    if key is not None:
        if not isinstance(state, dict) or key not in state:
            raise SystemExit(f"crimp.model: the checkpoint has no '{key}'; it has: {', '.join(map(str, state)) if isinstance(state, dict) else 'no names'}")
        state = state[key]
    if not isinstance(state, dict):
        raise SystemExit("crimp.model: the checkpoint is no dict of tensors")
    found = {str(name): value for name, value in state.items() if isinstance(value, torch.Tensor)}
    # Tensors beside a state dict are something else: the best accuracy, a generator's state.
    inner = [name for name, value in state.items() if isinstance(value, dict) and any(isinstance(v, torch.Tensor) for v in value.values())]
    if found and (key is not None or not inner or len(inner) == 1 and len(state[inner[0]]) <= len(found)):
        return found
    if len(inner) != 1:
        raise SystemExit(f"crimp.model: name the state dict among these: {', '.join(map(str, state)) or 'none'}\n{USAGE}")
    return tensors_of(state, inner[0])


def line(name, tensor):
    if any(ord(c) < 32 or c == "#" for c in name):
        raise SystemExit(f"crimp.model: a list cannot have the name {name!r}")
    shape = "x".join(map(str, tensor.shape)) or "1"
    return f"{name} {shape} {str(tensor.dtype).rsplit('.', 1)[-1]}"


def main(arguments):
    if len(arguments) not in (1, 2) or arguments[0] in ("-h", "--help"):
        raise SystemExit(USAGE)
    import torch

    try:
        state = torch.load(arguments[0], map_location="meta", weights_only=True)
    except Exception as error:  # whatever a file that is none makes of it
        why = str(error).split("WeightsUnpickler error: ")[-1].splitlines()
        raise SystemExit(f"crimp.model: {arguments[0]} is no checkpoint that can be read without running code: {why[0] if why else type(error).__name__}")
    print(f"# {arguments[0]}")
    for name, tensor in tensors_of(state, *arguments[1:]).items():
        if tensor.numel() > 0:  # such a tensor has no gradient either
            print(line(name, tensor))


if __name__ == "__main__":
    main(sys.argv[1:])
