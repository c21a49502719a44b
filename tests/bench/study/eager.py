"""Attention as it is defined, in PyTorch, an operation at a time with automatic differentiation: what
its memory is, and how often it goes over matrices as large as the scores.

One score buffer is such a matrix, [heads, len, len]: all here is in units of its bytes.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def all_named(q, k, v, scale):
    """Every step's matrix has a name until the function returns."""
    s = torch.bmm(q, k.transpose(1, 2))
    scaled = s * scale
    m = scaled.max(-1, keepdim=True).values
    difference = scaled - m
    e = difference.exp()
    l = e.sum(-1, keepdim=True)
    p = e / l
    return torch.bmm(p, v)


def product_unnamed(q, k, v, scale):
    """The product is scaled in the same expression: it goes once it is."""
    s = torch.bmm(q, k.transpose(1, 2)) * scale
    m = s.max(-1, keepdim=True).values
    difference = s - m
    e = difference.exp()
    l = e.sum(-1, keepdim=True)
    p = e / l
    return torch.bmm(p, v)


def one_name(q, k, v, scale):
    """One name for all: each matrix goes when the next is there, unless backward needs it."""
    s = torch.bmm(q, k.transpose(1, 2))
    s = s * scale
    s = s - s.max(-1, keepdim=True).values
    s = s.exp()
    s = s / s.sum(-1, keepdim=True)
    return torch.bmm(s, v)


VARIANTS = {'all_named': all_named, 'product_unnamed': product_unnamed, 'one_name': one_name}


class Inputs:
    """Self-attention of [heads, len, dim] on a device, and the gradient of its output."""

    def __init__(self, heads, length, dim, dtype=torch.float32, device='cuda'):
        make = lambda: torch.randn(heads, length, dim, dtype=dtype, device=device)
        self.leaves = [make().requires_grad_() for _ in range(3)]
        self.d_o = make()
        self.scale = dim**-0.5
        self.buffer_bytes = heads * length * length * self.d_o.element_size()

    def forward(self, variant):
        return VARIANTS[variant](*self.leaves, self.scale)

    def backward(self, o):
        return torch.autograd.grad(o, self.leaves, self.d_o)


def _peak(run):
    """What `run` returns, and the most bytes that there were while it ran."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    result = run()
    torch.cuda.synchronize()
    return result, torch.cuda.max_memory_allocated()


def memory(inputs, variant):
    """Score buffers beside the inputs, by the allocator's own count."""
    first = inputs.forward(variant)  # what the library keeps for itself is there then
    inputs.backward(first)
    del first
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    in_buffers = lambda count: (count - before) / inputs.buffer_bytes
    o, forward = _peak(lambda: inputs.forward(variant))
    retained = torch.cuda.memory_allocated()
    results, backward = _peak(lambda: inputs.backward(o))
    del o, results
    with torch.no_grad():
        o, inference = _peak(lambda: inputs.forward(variant))
    return {'variant': variant, 'forward': in_buffers(forward), 'retained': in_buffers(retained),
            'backward': in_buffers(backward), 'no_gradients': in_buffers(inference)}


class Trace(TorchDispatchMode):
    """Which operators run, and how many score buffers each reads and writes."""

    def __init__(self, buffer_bytes):
        super().__init__()
        self.buffer_bytes = buffer_bytes
        self.steps = []

    def _large(self, tree):
        """Storages of the tensors that are as large as the scores."""
        storages = (t.untyped_storage() for t in tree_leaves(tree) if isinstance(t, torch.Tensor))
        return {s.data_ptr() for s in storages if s.nbytes() >= self.buffer_bytes}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        reads = self._large((args, kwargs))
        result = func(*args, **(kwargs or {}))
        writes = self._large(result)
        if not func._schema.is_mutable:
            if writes and writes <= reads:
                return result  # another view of the same memory
            writes -= reads
        if reads or writes:
            self.steps.append({'op': func._schema.name.replace('aten::', ''), 'reads': len(reads),
                               'writes': len(writes)})
        return result


def trace(inputs, variant='all_named'):
    """{'forward': steps, 'backward': steps}"""
    found = {}
    with Trace(inputs.buffer_bytes) as mode:
        o = inputs.forward(variant)
        found['forward'], mode.steps = mode.steps, []
        inputs.backward(o)
        found['backward'] = mode.steps
    return found


def run(heads=8, length=8192, dim=128):
    """The part `naive` of the study."""
    inputs = Inputs(heads, length, dim)
    rows = [memory(inputs, variant) for variant in VARIANTS]
    return {'heads': heads, 'len': length, 'dim': dim, 'dtype': 'f32',
            'buffer_bytes': inputs.buffer_bytes, 'memory': rows, 'trace': trace(inputs)}
