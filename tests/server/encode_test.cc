#include "server/front/encode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attn/v1/attention.pb.h"
#include "proto/wire/status.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/team_backend.h"

namespace attnd::server {
namespace {

using ::testing::HasSubstr;

// With O and LSE as outputs, or dQ, dK and dV in f32.
std::unique_ptr<const Request> MakeRequest(Op op, int64_t len, int64_t dim) {
  RequestSpec spec;
  spec.op = op;
  std::vector<TensorId> tensors = {TensorId::kQ, TensorId::kK, TensorId::kV};
  if (op == Op::kBackward) {
    tensors.insert(tensors.end(), {TensorId::kO, TensorId::kDO});
    spec.inputs[TensorId::kLse] = {DType::kF32, {1, 3, len}};
    for (TensorId id : {TensorId::kDQ, TensorId::kDK, TensorId::kDV}) {
      spec.outputs[id].dtype = DType::kF32;
    }
  }
  for (TensorId id : tensors) {
    spec.inputs[id] = {DType::kBF16, {1, len, 3, dim}};
  }
  auto request = Request::Create(std::move(spec));
  EXPECT_TRUE(request.ok()) << request.status();
  return *std::move(request);
}

// The bytes of its response, with as large a report as can be.
int64_t ResponseBytes(const Request& request) {
  const auto pool = OutputPool::Create(IdentityBackend().host_memory(), 0);
  WorkResult result;
  for (int id = 0; id < kTensorIds; ++id) {
    const Request::Tensor& output = request.output(static_cast<TensorId>(id));
    if (!output.present) continue;
    result.outputs[static_cast<TensorId>(id)] =
        pool->Allocate(output.bytes, nullptr);
  }
  result.device = "cuda:64 " + std::string(256, 'x');
  result.kernel.name = std::string(64, 'x');
  result.batch_requests = std::numeric_limits<int>::max();
  result.phases.queue = result.phases.upload = result.phases.compute =
      result.phases.download = absl::InfiniteDuration();
  PlanReport& plan = result.plan.emplace();
  plan.kind = PlanKind::kGather;
  plan.why = std::string(2000, 'x');  // sent in part
  plan.devices.assign(64, {"cuda:63", absl::InfiniteDuration()});
  plan.predicted = absl::InfiniteDuration();
  const auto pieces = EncodeResult(request, result);
  EXPECT_TRUE(pieces.ok()) << pieces.status();
  return wire::TotalBytes(*pieces);
}

// The smallest limit that admits it.
int64_t SmallestLimit(const Request& request) {
  int64_t refused = 0, fits = int64_t{1} << 31;
  EXPECT_EQ(CheckResponseFits(request, fits), absl::OkStatus());
  while (fits - refused > 1) {
    const int64_t middle = (refused + fits) / 2;
    (CheckResponseFits(request, middle).ok() ? fits : refused) = middle;
  }
  return fits;
}

TEST(CheckResponseFits, AdmitsNothingThatCannotBeSent) {
  for (Op op : {Op::kForward, Op::kBackward}) {
    // Lengths whose varints take another number of bytes each.
    for (int64_t len : {0, 1, 40, 5000, 700000}) {
      const auto request = MakeRequest(op, len, 8);
      const int64_t limit = SmallestLimit(*request);
      EXPECT_GE(limit, ResponseBytes(*request)) << len;
      // But for the report, of which this is the largest, it counts exactly.
      EXPECT_LE(limit, ResponseBytes(*request) + 384) << len;
    }
  }
}

TEST(CheckResponseFits, NamesTheLargestOutputAndTheLimit) {
  const auto request = MakeRequest(Op::kForward, 1000, 8);
  const absl::Status status = CheckResponseFits(*request, 50000);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  ASSERT_EQ(wire::FieldViolations(status).size(), 1);
  EXPECT_EQ(wire::FieldViolations(status)[0].field, "o");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("(o 48000, lse 12000), more than the largest message "
                        "of 50000"));
}

// One request's answer, by Forward and by an Exchange.
class EncodedPlan : public ::testing::Test {
 protected:
  // What both say of `plan`.
  attn::v1::ExecutionReport Encoded(std::optional<PlanReport> plan) {
    const auto result = std::make_shared<WorkResult>();
    result->plan = std::move(plan);
    const auto pieces = EncodeResult(*request_, *result);
    EXPECT_TRUE(pieces.ok()) << pieces.status();
    attn::v1::ForwardResponse unary;
    EXPECT_TRUE(unary.ParseFromString(Bytes(*pieces)));
    attn::v1::ExchangeResponse exchanged;
    EXPECT_TRUE(exchanged.ParseFromString(
        Bytes(EncodeTransferResult({request_, result, {}}))));
    EXPECT_EQ(exchanged.forward().report().SerializeAsString(),
              unary.report().SerializeAsString());
    return unary.report();
  }

 private:
  static std::string Bytes(const std::vector<wire::Piece>& pieces) {
    std::string bytes;
    for (const wire::Piece& piece : pieces) {
      absl::StrAppend(&bytes, piece.owned, piece.borrowed);
    }
    return bytes;
  }

  const std::shared_ptr<const Request> request_ =
      MakeRequest(Op::kForward, 0, 8);
};

TEST_F(EncodedPlan, SaysWhatATeamRanItAs) {
  const PlanReport plan = TeamBackend::Report(PlanKind::kGather);
  const attn::v1::PlanReport to = Encoded(plan).plan();
  EXPECT_EQ(to.plan(), attn::v1::PLAN_GATHER);
  EXPECT_EQ(to.why(), plan.why);
  EXPECT_EQ(to.predicted_ns(), 25000);
  ASSERT_EQ(to.devices_size(), 2);
  EXPECT_EQ(to.devices(0).device(), "fake:0");
  EXPECT_EQ(to.devices(0).busy_ns(), 30000);
  EXPECT_EQ(to.devices(1).busy_ns(), 20000);
}

TEST_F(EncodedPlan, NamesEachKind) {
  for (const auto& [kind, plan] :
       {std::pair{PlanKind::kOneDevice, attn::v1::PLAN_ONE_DEVICE},
        {PlanKind::kHeads, attn::v1::PLAN_HEADS},
        {PlanKind::kGather, attn::v1::PLAN_GATHER},
        {PlanKind::kRing, attn::v1::PLAN_RING},
        {PlanKind::kStriped, attn::v1::PLAN_STRIPED},
        {PlanKind::kZigzag, attn::v1::PLAN_ZIGZAG},
        {PlanKind::kKv, attn::v1::PLAN_KV}}) {
    EXPECT_EQ(Encoded(TeamBackend::Report(kind)).plan().plan(), plan);
  }
}

TEST_F(EncodedPlan, IsAbsentWhereOneDeviceRanIt) {
  EXPECT_FALSE(Encoded(std::nullopt).has_plan());
}

}  // namespace
}  // namespace attnd::server
