#include "tests/emulation/report.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace attnd::emulation {
namespace {

std::string StateOf(const Thread& thread) {
  if (thread.done) return "ended";
  const Wait& wait = thread.wait;
  if (wait.what == nullptr) return "goes on";
  std::string state = absl::StrCat("waits for ", wait.what);
  if (wait.where != 0) absl::StrAppend(&state, " at 0x", absl::Hex(wait.where));
  return state;
}

}  // namespace

std::string Describe(absl::Span<Block* const> blocks) {
  std::string all;
  for (const Block* block : blocks) {
    absl::StrAppend(&all, "block ", block->index, ":");
    size_t threads = 0;
    for (const auto& warp : block->warps) threads += warp->threads.size();
    for (size_t i = 0; i < threads;) {
      const std::string state = StateOf(*block->threads[i]);
      size_t end = i + 1;
      while (end < threads && StateOf(*block->threads[end]) == state) ++end;
      absl::StrAppend(&all, " [", i, "-", end - 1, "] ", state, ";");
      i = end;
    }
    absl::StrAppend(&all, "\n");
  }
  return all;
}

}  // namespace attnd::emulation
