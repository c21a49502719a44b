#include "kernels/plan/shares.h"

#include <algorithm>
#include <cmath>

#include "kernels/plan/cuts.h"

namespace attnd::plan {
namespace {

// How far from its due a device's work may be so that no head is cut for it.
constexpr double kTolerance = 0.02;

// What one kv head of a sequence costs: its pairs, and a little for each token,
// as rows that see nothing are written too.
double HeadCost(const PlanRequest& request, const SequenceShape& sequence) {
  const RowIntervals& sees = sequence.sees;
  const Run rows{0, sees.rows}, columns{0, sees.columns};
  return static_cast<double>(request.ProblemOf(sequence).group()) *
         (PairsOf(sees, rows, columns) +
          static_cast<double>(sees.rows + sees.columns));
}

// Deals out heads on a line, along which work grows.
class Dealer {
 public:
  Dealer(const PlanRequest& request, int devices)
      : request_(request), shares_(devices) {
    for (const SequenceShape& sequence : request.sequences) {
      total_ += HeadCost(request, sequence) *
                static_cast<double>(request.ProblemOf(sequence).kv_heads);
    }
    due_ = total_ / devices;
  }

  std::vector<std::vector<Share>> Deal() {
    for (size_t i = 0; i < request_.sequences.size(); ++i) {
      sequence_ = static_cast<int32_t>(i);
      cost_ = HeadCost(request_, request_.sequences[i]);
      DealSequence();
    }
    return std::move(shares_);
  }

 private:
  const SequenceShape& sequence() const {
    return request_.sequences[sequence_];
  }
  // Where the current device's work should end.
  double End() const { return due_ * (device_ + 1); }
  bool IsLast() const { return device_ + 1 == shares_.size(); }

  void DealSequence() {
    const int64_t kv_heads = request_.ProblemOf(sequence()).kv_heads;
    for (int64_t head = 0; head < kv_heads;) {
      const double room = IsLast() ? total_ : End() - at_;
      const int64_t fit = static_cast<int64_t>(
          std::floor((room + kTolerance * due_) / std::max(cost_, 1.0)));
      const int64_t whole =
          IsLast() ? kv_heads - head : std::min(kv_heads - head, fit);
      if (whole > 0) Give(head, whole);
      head += std::max<int64_t>(whole, 0);
      if (head == kv_heads) break;
      if (End() - at_ > kTolerance * due_ && sequence().sees.rows > 0) {
        DealRows(head++);
      } else {
        ++device_;
      }
    }
  }

  void Give(int64_t head, int64_t heads) {
    shares_[device_].push_back(
        {sequence_, head, heads, {0, sequence().sees.rows}});
    at_ += cost_ * static_cast<double>(heads);
  }

  // The rows of one head, to as many devices as it takes.
  void DealRows(int64_t head) {
    const RowIntervals& sees = sequence().sees;
    const double pairs = PairsOf(sees, {0, sees.rows}, {0, sees.columns});
    const double begin = at_;
    int64_t row = 0;
    while (row < sees.rows) {
      int64_t end = sees.rows;
      if (!IsLast() && begin + cost_ > End() + kTolerance * due_) {
        const double part = (End() - begin) / cost_;
        end = std::max(
            row, RowsOfPairs(sees, pairs * part, RowGrain(sequence().unit)));
      }
      if (end > row) {
        shares_[device_].push_back({sequence_, head, 1, Between(row, end)});
      }
      row = end;
      if (row < sees.rows) ++device_;
    }
    at_ = begin + cost_;
  }

  const PlanRequest& request_;
  std::vector<std::vector<Share>> shares_;
  double total_ = 0, due_ = 0;
  double at_ = 0;  // work that has been dealt
  size_t device_ = 0;
  int32_t sequence_ = 0;
  double cost_ = 0;  // of one of its heads
};

}  // namespace

std::vector<std::vector<Share>> ShareHeads(const PlanRequest& request,
                                           int devices) {
  return Dealer(request, devices).Deal();
}

}  // namespace attnd::plan
