"""What is set side by side on a GPU: names, colours, and what runs each. Knows no torch."""

# {side: (title, colour, {direction: algorithm of ours.py}, what it is)}
SIDES = {
    'naive': ('naive', '#999999', {'forward': 'naive', 'backward': 'naive'},
              'matrices of scores in memory; products by cuBLAS, a kernel for each step between '
              'them, backward in the order of its equations (`kernels/cuda/baselines/naive`)'),
    'naive_autograd': ("naive, autograd's order", '#555555', {'backward': 'naive_autograd'},
                       'the same backward, as automatic differentiation orders it: an operation at '
                       'a time'),
    'torch': ('PyTorch, unfused', '#E69F00', {},
              '`scaled_dot_product_attention` with `SDPBackend.MATH`'),
    'flash_attention_1': ('FlashAttention-1', '#56B4E9', {'forward': 'flash_attention_1'},
                          "the paper's Algorithm 1 to the letter: K and V outside, O, l and m of "
                          'every tile from memory and back, a head by one block of threads; so '
                          'there are no more blocks than heads, 16 to 512 in these shapes, for '
                          "the GPU's multiprocessors (`kernels/cuda/baselines/flash_attention_1`)"),
    'flash_attention_2': ('FlashAttention-2', '#0072B2', {'forward': 'any_gpu',
                                                         'backward': 'any_gpu'},
                          'the fused kernels for any GPU since Ampere (`kernels/cuda/sm80`)'),
    'hopper': ('Hopper', '#D55E00', {'forward': 'auto', 'backward': 'auto'},
               "the fused kernels in Hopper's instructions (`kernels/cuda/sm90`)"),
}

DIRECTIONS = ('forward', 'backward')


def title(side):
    return SIDES[side][0]


def color(side):
    return SIDES[side][1]


def algorithm(side, direction):
    """None when the side does not go that way, or is not ours."""
    return SIDES[side][2].get(direction)


def what(side):
    return SIDES[side][3]
