#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cpu/flash.h"

namespace attnd {
namespace {

using Kind = FlashTask::Kind;

// Blocks of at most kMaxLaneTokens, as even as whole vectors allow: the size
// depends on the sequence's own length alone.
int64_t BlockTokens(int64_t tokens) {
  const int64_t blocks = (tokens + kMaxLaneTokens - 1) / kMaxLaneTokens;
  const int64_t even = (tokens + blocks - 1) / blocks;
  return std::min(kMaxLaneTokens, (even + 15) / 16 * 16);
}

// Calls block(first, count) for blocks that cover [0, tokens).
template <class Block>
void ForEachBlock(int64_t tokens, Block block) {
  if (tokens == 0) return;
  const int64_t size = BlockTokens(tokens);
  for (int64_t first = 0; first < tokens; first += size) {
    block(first, std::min(size, tokens - first));
  }
}

// Blocks of q rows. A few rows leave lanes empty, which more q heads of the
// same kv head then fill: they share K and V.
void PlanRows(const Sequence& sequence, FlashTask task, int64_t flops_per_pair,
              std::vector<FlashTask>* tasks) {
  const Problem& p = sequence.problem();
  const int64_t q_len = sequence.q_len();
  ForEachBlock(q_len, [&](int64_t first, int64_t count) {
    const int64_t fit =
        std::clamp<int64_t>(kMaxLaneTokens / BlockTokens(q_len), 1, p.group());
    const int64_t columns = sequence.Columns(first, first + count - 1);
    task.first = first;
    task.count = count;
    for (int64_t kv_head = 0; kv_head < p.kv_heads; ++kv_head) {
      for (int64_t g = 0; g < p.group(); g += fit) {
        task.head = kv_head * p.group() + g;
        task.heads = std::min(fit, p.group() - g);
        task.flops =
            static_cast<double>(columns) * task.heads * count * flops_per_pair;
        tasks->push_back(task);
      }
    }
  });
}

void PlanColumns(const Sequence& sequence, FlashTask task,
                 int64_t flops_per_pair, std::vector<Piece>* pieces,
                 std::vector<FlashTask>* tasks) {
  const Problem& p = sequence.problem();
  ForEachBlock(KvLen(p, task.b), [&](int64_t first, int64_t count) {
    sequence.Pieces(first, count, pieces);
    double pairs = 0;
    for (const Piece& piece : *pieces) {
      pairs +=
          static_cast<double>(sequence.RowsThatSee(piece).size()) * piece.count;
    }
    task.first = first;
    task.count = count;
    task.heads = p.group();
    task.flops = pairs * p.group() * flops_per_pair;
    for (task.head = 0; task.head < p.kv_heads; ++task.head) {
      tasks->push_back(task);
    }
  });
}

void SortLongestFirst(std::vector<FlashTask>* tasks) {
  std::stable_sort(
      tasks->begin(), tasks->end(),
      [](const FlashTask& a, const FlashTask& b) { return a.flops > b.flops; });
}

// Tokens [first, last) of all heads. No type's zero has a bit set.
void ClearTokens(const TensorView& view, int64_t b, int64_t first, int64_t last,
                 int64_t heads, int64_t dim) {
  if (!view) return;
  for (int64_t t = first; t < last; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      std::memset(RowAt(view, b, t, h), 0, dim * SizeOf(view.dtype));
    }
  }
}

int64_t Blocks(int64_t tokens) {
  return (tokens + kMaxLaneTokens - 1) / kMaxLaneTokens;
}

}  // namespace

std::vector<FlashTask> PlanForward(absl::Span<const ForwardArgs> group) {
  std::vector<FlashTask> tasks;
  Sequence sequence;
  for (size_t i = 0; i < group.size(); ++i) {
    const Problem& p = group[i].problem;
    FlashTask task;
    task.problem = static_cast<int64_t>(i);
    for (task.b = 0; task.b < p.batch; ++task.b) {
      sequence.Reset(p, task.b);
      task.kind = Kind::kForward;
      PlanRows(sequence, task, 2 * (p.head_dim + p.value_dim), &tasks);
      if (sequence.q_len() < p.q_len) {
        task.kind = Kind::kEmpty;
        tasks.push_back(task);
      }
    }
  }
  SortLongestFirst(&tasks);
  return tasks;
}

std::vector<FlashTask> PlanBackward(absl::Span<const BackwardArgs> group) {
  std::vector<FlashTask> tasks;
  std::vector<Piece> pieces;
  Sequence sequence;
  for (size_t i = 0; i < group.size(); ++i) {
    const Problem& p = group[i].problem;
    bool dkv = false;
    for (const KvSegment& s : p.kv) dkv = dkv || s.dk || s.dv;
    FlashTask task;
    task.problem = static_cast<int64_t>(i);
    for (task.b = 0; task.b < p.batch; ++task.b) {
      sequence.Reset(p, task.b);
      if (group[i].dq) {
        task.kind = Kind::kDq;
        PlanRows(sequence, task, 2 * (2 * p.head_dim + p.value_dim), &tasks);
      }
      if (dkv) {
        task.kind = Kind::kDkv;
        PlanColumns(sequence, task, 4 * (p.head_dim + p.value_dim), &pieces,
                    &tasks);
      }
      task = {.kind = Kind::kEmpty, .problem = task.problem, .b = task.b};
      tasks.push_back(task);
    }
  }
  SortLongestFirst(&tasks);
  return tasks;
}

void ClearForward(const ForwardArgs& args, const FlashTask& task) {
  const Problem& p = args.problem;
  const int64_t q_len = QLen(p, task.b);
  ClearTokens(args.o, task.b, q_len, p.q_len, p.q_heads, p.value_dim);
  if (!args.lse) return;
  for (int64_t h = 0; h < p.q_heads; ++h) {
    float* row = RowAt(args.lse, task.b, h);
    std::fill(row + q_len, row + p.q_len,
              -std::numeric_limits<float>::infinity());
  }
}

void ClearBackward(const BackwardArgs& args, const FlashTask& task) {
  const Problem& p = args.problem;
  ClearTokens(args.dq, task.b, QLen(p, task.b), p.q_len, p.q_heads, p.head_dim);
  for (const KvSegment& s : p.kv) {
    const int64_t len = KvLen(s, task.b);
    ClearTokens(s.dk, task.b, len, s.len, p.kv_heads, p.head_dim);
    ClearTokens(s.dv, task.b, len, s.len, p.kv_heads, p.value_dim);
  }
}

int64_t FlashScratchBytes(const Problem& p, int threads) {
  // Tiles of both sides, four of them [kTileTokens or fewer, dim] at most for
  // each of the two dims, and three tiles of scores.
  const int64_t dims = TileStride(p.head_dim) + TileStride(p.value_dim);
  const int64_t floats =
      2 * kTileTokens * dims + 3 * kTileTokens * TileStride(kMaxLaneTokens);
  int64_t tasks = 0;
  const int64_t kv_len = p.kv.empty() ? 0 : p.kv[0].len;
  const double blocks = static_cast<double>(p.batch) * p.q_heads *
                        std::max(Blocks(p.q_len), Blocks(kv_len));
  tasks = static_cast<int64_t>(std::min<double>(blocks, threads));
  return std::max<int64_t>(tasks, 1) * floats *
         static_cast<int64_t>(sizeof(float));
}

}  // namespace attnd
