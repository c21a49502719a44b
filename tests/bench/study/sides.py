"""What is set side by side on a GPU: names, colours, and what runs each. Knows no torch."""

# {side: (title, colour, {direction: algorithm of ours.py})}
SIDES = {
    'naive': ('naive', '#999999', {'forward': 'naive', 'backward': 'naive'}),
    'naive_autograd': ("naive, autograd's order", '#555555', {'backward': 'naive_autograd'}),
    'torch': ('PyTorch, unfused', '#E69F00', {}),
    'flash_attention_1': ('FlashAttention-1', '#56B4E9', {'forward': 'flash_attention_1'}),
    'flash_attention_2': ('FlashAttention-2', '#0072B2', {'forward': 'any_gpu',
                                                         'backward': 'any_gpu'}),
    'hopper': ('Hopper', '#D55E00', {'forward': 'auto', 'backward': 'auto'}),
}

DIRECTIONS = ('forward', 'backward')


def title(side):
    return SIDES[side][0]


def color(side):
    return SIDES[side][1]


def algorithm(side, direction):
    """None when the side does not go that way, or is not ours."""
    return SIDES[side][2].get(direction)
