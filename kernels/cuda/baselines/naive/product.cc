#include "kernels/cuda/baselines/naive/product.h"

#include <algorithm>
#include <utility>

namespace attnd::cuda {
namespace {

// Whether `outer` goes on where `inner` ends.
bool Continues(const Repeat& outer, const Repeat& inner) {
  return outer.a == inner.count * inner.a && outer.b == inner.count * inner.b &&
         outer.c == inner.count * inner.c;
}

}  // namespace

Product Fold(Product product) {
  std::array<Repeat, 3> folded;
  int count = 0;
  for (Repeat repeat : product.repeats) {
    if (repeat.count == 1) continue;
    if (count > 0 && Continues(folded[count - 1], repeat)) {
      repeat.count *= folded[count - 1].count;
      folded[count - 1] = repeat;
    } else {
      folded[count++] = repeat;
    }
  }
  Repeat* longest = std::max_element(
      folded.begin(), folded.end(),
      [](const Repeat& a, const Repeat& b) { return a.count < b.count; });
  std::swap(*longest, folded[2]);
  product.repeats = folded;
  return product;
}

}  // namespace attnd::cuda
