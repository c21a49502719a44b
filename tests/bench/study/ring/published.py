"""What the study compares with: what others have published, and what this project has measured
elsewhere. Numbers and where they are from."""

NOTE = 'the note'
RING = 'Liu, Zaharia, Abbeel 2023, arXiv:2310.01889'
STRIPED = 'Brandon et al. 2023, arXiv:2311.09431'
FA2 = 'Dao 2023, arXiv:2307.08691'

SOURCES = (
    (NOTE, 'a note on ring attention that was published on the web: its derivation, its code, its '
           'accuracy on 8 devices, and its tables of 8 × RTX 4090 and 8 × H100'),
    ('arXiv:2310.01889', 'Liu, Zaharia, Abbeel: *Ring attention with blockwise transformers for '
                         'near-infinite context*, 2023'),
    ('arXiv:2311.09431', 'Brandon et al.: *Striped attention: faster ring attention for causal '
                         'transformers*, 2023'),
    ('arXiv:2307.08691', 'Dao: *FlashAttention-2: faster attention with better parallelism and '
                         'work partitioning*, 2023'),
    ('zhuzilin/ring-flash-attention', 'on GitHub: ring, zigzag and stripe over FlashAttention-2; '
                                      'its figures of 8 × H800'),
    ('EasyContext #14', 'on GitHub, jzhang38/EasyContext: the first merge code overflows'),
    ('data sheets', "NVIDIA's of A100 SXM 80 GB, H100 SXM and GeForce RTX 4090"),
)

# By GPU, from data sheets: TFLOP/s in 16 bits, dense and sparse; TB/s of memory; TB/s to another
# GPU in one direction (NVLink, or PCIe 4.0 x 16); and the FLOP/B that the note has it by.
GPUS = {
    'A100': {'dense': 312, 'sparse': 624, 'memory': 2.039, 'link': 0.3, 'claimed': 306},
    'RTX 4090': {'dense': 165.2, 'sparse': 330.3, 'memory': 1.008, 'link': 0.032, 'claimed': 329},
    'H100': {'dense': 989, 'sparse': 1979, 'memory': 3.35, 'link': 0.45, 'claimed': 591},
}
# This project on H100s over NVLink (tests/bench/RESULTS.md): forward at D = 128, and pulls.
MEASURED = {'flops': 640e12, 'link': 370e9, 'latency': 15e-6}

# Of the note.
SWAPPED = {'right': 2.463, 'printed': 4.537}  # out 2 with lse 1.7, block's 5 with lse 0
OVERFLOW = 88.7
ACCURACY = {'len': 3816, 'heads': 5, 'dim': 128, 'devices': 8,
            'mean': (1.14e-4, 5.63e-5)}  # of |O - one device's|, ranks 1 and 7
LENGTHS = (4096, 8192, 16384, 32768, 65536, 128000)  # in all; batch 2, 16 heads of 128
STRIPED_OVER_RING = (0.27, 0.38, 0.89, 1.76, 1.38, 1.59)  # forward, by LENGTHS, 8 x RTX 4090
H100_TFLOPS = {'total': 2.8, 'each': 179}  # a GPU, T being all tokens, or each GPU's
FA2_H100_TFLOPS = 335  # FlashAttention-2 as it is, arXiv:2307.08691
MEMORY_RATIO = 9.06  # what its tables hold over 6nd, T being all tokens
PROFILES = {'copies are longer': 4096, 'computing is longer': 65536}  # tokens a GPU, 8 of them
# Of zhuzilin/ring-flash-attention, 8 x H800: percent of FlashAttention-2's speed, forward.
H800_PERCENT = {'ring': 52, 'zigzag': 85, 'striped': 74}
