#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cpu/flash.h"

namespace attnd {
namespace {

using Kind = FlashTask::Kind;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Lane tokens of a task, for `heads` heads of `tokens` each. Long blocks read
// the stream side less often, shorter ones give more tasks to share out; equal
// ones end together. It depends on the sequence's own shape alone.
int64_t BlockTokens(int64_t tokens, int64_t heads) {
  constexpr int64_t kEnoughTasks = 64;
  constexpr int64_t kShort = kMaxLaneTokens / 2;
  const int64_t most = heads * CeilDiv(tokens, kMaxLaneTokens) < kEnoughTasks
                           ? kShort
                           : kMaxLaneTokens;
  const int64_t even = CeilDiv(tokens, CeilDiv(tokens, most));
  return std::min(most, CeilDiv(even, 16) * 16);
}

// Calls block(first, count) for blocks of `size` that cover [0, tokens).
template <class Block>
void ForEachBlock(int64_t tokens, int64_t size, Block block) {
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
  if (q_len == 0) return;
  const int64_t size = BlockTokens(q_len, p.q_heads);
  const int64_t fit = std::clamp<int64_t>(
      kMaxLaneTokens / 2 / std::min(size, q_len), 1, p.group());
  ForEachBlock(q_len, size, [&](int64_t first, int64_t count) {
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

// Blocks of K/V tokens, over all rows and q heads that see them.
void PlanColumns(const Sequence& sequence, FlashTask task,
                 int64_t flops_per_pair, std::vector<Piece>* pieces,
                 std::vector<FlashTask>* tasks) {
  const Problem& p = sequence.problem();
  const int64_t kv_len = KvLen(p, task.b);
  if (kv_len == 0) return;
  const int64_t size = BlockTokens(kv_len, p.kv_heads);
  ForEachBlock(kv_len, size, [&](int64_t first, int64_t count) {
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

}  // namespace

bool HasOutputs(Op op, const Problem& p) {
  if (p.batch == 0 || p.q_heads == 0) return false;
  if (p.q_len > 0) return true;
  return op == Op::kBackward &&
         std::any_of(p.kv.begin(), p.kv.end(),
                     [](const KvSegment& s) { return s.len > 0; });
}

std::vector<FlashTask> PlanForward(absl::Span<const ForwardArgs> group) {
  std::vector<FlashTask> tasks;
  Sequence sequence;
  for (size_t i = 0; i < group.size(); ++i) {
    const Problem& p = group[i].problem;
    if (!HasOutputs(Op::kForward, p)) continue;
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
    if (!HasOutputs(Op::kBackward, p)) continue;
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
  int64_t tokens = p.q_len;
  double blocks = 1 + CeilDiv(p.q_len, kMaxLaneTokens / 2);
  for (const KvSegment& s : p.kv) {
    tokens = std::max(tokens, s.len);
    blocks += CeilDiv(s.len, kMaxLaneTokens / 2);
  }
  const double tasks = blocks * p.batch * p.q_heads + p.batch;
  // At most two tiles of lane tokens and one of stream tokens for each of the
  // two dims, and three tiles of scores.
  const double rows = static_cast<double>(tokens) * p.group();
  const int64_t lanes =
      CeilDiv(static_cast<int64_t>(std::min<double>(kMaxLaneTokens, rows)),
              16) *
      16;
  const int64_t stream = std::min(kTileTokens, tokens);
  const int64_t dims = TileStride(p.head_dim) + TileStride(p.value_dim);
  const int64_t floats =
      (2 * lanes + stream) * dims + 3 * stream * TileStride(lanes);
  const auto workers = static_cast<int64_t>(std::min<double>(tasks, threads));
  return workers * floats * static_cast<int64_t>(sizeof(float)) +
         static_cast<int64_t>(tasks * sizeof(FlashTask));
}

}  // namespace attnd
