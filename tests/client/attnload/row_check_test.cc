#include "client/attnload/row_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "client/element.h"
#include "tests/client/attnload/plain_attention.h"

namespace attnd::attnload {
namespace {

class RowCheck : public ::testing::TestWithParam<const char*> {
 protected:
  RowCheck()
      : payload_(*ParseShape(GetParam()), /*seed=*/3),
        answer_(payload_.TakeAnswer()) {
    Payload::Poison(*answer_);
    ComputePlainly(payload_, *answer_);
  }
  // Each output as if attention's scale had been `factor` times its value.
  void ComputeWithScale(double factor) {
    ComputePlainly(payload_, *answer_, factor);
  }
  RowVerdict Check() { return CheckRows(payload_, *answer_, 40, random_); }

  Payload payload_;
  std::unique_ptr<Answer> answer_;
  std::mt19937_64 random_{5};
};

TEST_P(RowCheck, AcceptsAPlainComputationInF32) {
  const RowVerdict verdict = Check();
  EXPECT_TRUE(verdict.right()) << verdict.worst << " " << verdict.where;
  EXPECT_GT(verdict.elements, 0);
}

TEST_P(RowCheck, RefusesAnswersThatWereNeverWritten) {
  Payload::Poison(*answer_);
  EXPECT_FALSE(Check().right());
}

TEST_P(RowCheck, RefusesAnswersInAnotherOrder) {
  // Shifted by one row, as an error in an index would do.
  const int64_t element = client::SizeOf(payload_.shape().dtype);
  const int64_t row = (payload_.shape().backward ? payload_.shape().head_dim
                                                 : payload_.shape().value_dim) *
                      element;
  std::memmove(answer_->a.data() + row, answer_->a.data(),
               answer_->a.size() - row);
  const RowVerdict verdict = Check();
  EXPECT_FALSE(verdict.right());
  EXPECT_NE(verdict.where.find("should be"), std::string::npos);
}

// Where a type is fine enough to show it: in forward always, as LSE is f32.
TEST_P(RowCheck, RefusesAScaleThatIsOffByATwentiethOfAPercent) {
  const Shape& shape = payload_.shape();
  const bool coarse = shape.backward && shape.dtype != client::DType::kF32;
  ComputeWithScale(coarse ? 1 + 4 * UnitRoundoff(shape.dtype) : 1.0005);
  EXPECT_FALSE(Check().right());
}

INSTANTIATE_TEST_SUITE_P(Shapes, RowCheck,
                         ::testing::Values("forward:f32:b2:s33:h4/2:d16",
                                           "forward:f16:s40/70:d24/8",
                                           "forward:bf16:s50:h2:d64:causal",
                                           "forward:f32:s30/20:h2:causal:w5/0",
                                           "backward:f32:b2:s33:h4/2:d16",
                                           "backward:f16:s40/70:d24/8",
                                           "backward:bf16:s50:h2:causal",
                                           // Gradients of f16's subnormals.
                                           "backward:f16:s1/8192:h2:d16",
                                           "backward:f32:s30/20:h2:w5/3"));

}  // namespace
}  // namespace attnd::attnload
