#include "server/front/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/v1/attention.pb.h"
#include "tests/server/bad_requests.h"

namespace attnd::server {
namespace {

namespace pb = ::attn::v1;
using ::testing::ElementsAre;

// `bytes` cut into fragments of at most `size`.
std::vector<absl::string_view> Cut(absl::string_view bytes, size_t size) {
  std::vector<absl::string_view> fragments;
  for (size_t at = 0; at < bytes.size(); at += size) {
    fragments.push_back(bytes.substr(at, size));
  }
  return fragments;
}

std::string Joined(const std::vector<ConstHostSpan>& pieces) {
  std::string all;
  for (const ConstHostSpan& piece : pieces) {
    all.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return all;
}

TEST(DecodeWork, TakesTensorBytesAsViewsOfTheMessage) {
  const pb::ForwardRequest message = GoodForward();
  const std::string bytes = message.SerializeAsString();
  for (size_t size : {size_t{1}, size_t{7}, size_t{1000}, bytes.size()}) {
    const auto fragments = Cut(bytes, size);
    Work work;
    ASSERT_TRUE(DecodeWork(Op::kForward, fragments, nullptr, work).ok());
    const auto pieces = [&](TensorId id) -> const HostPieces& {
      return std::get<HostPieces>(work.inputs[id]);
    };
    EXPECT_EQ(Joined(pieces(TensorId::kQ)), message.q().data());
    EXPECT_EQ(Joined(pieces(TensorId::kK)), message.k().data());
    EXPECT_EQ(Joined(pieces(TensorId::kV)), message.v().data());
    EXPECT_TRUE(pieces(TensorId::kBias).empty());
    for (const ConstHostSpan& piece : pieces(TensorId::kV)) {
      const char* at = reinterpret_cast<const char*>(piece.data());
      EXPECT_GE(at, bytes.data());
      EXPECT_LE(at + piece.size(), bytes.data() + bytes.size());
    }
  }
}

TEST(DecodeWork, FillsEveryFieldOfTheSpec) {
  pb::ForwardRequest m = GoodForward();
  pb::Attention& a = *m.mutable_attention();
  a.set_layout(pb::LAYOUT_BSHD);
  a.set_scale(0.5f);
  a.set_softcap(30.0f);
  a.mutable_mask()->set_causal(true);
  a.mutable_mask()->set_window_left(4);
  a.mutable_mask()->set_window_right(-1);
  for (int64_t n : {3, 2}) a.add_q_lens(n);
  for (int64_t n : {5, 0}) a.add_kv_lens(n);
  for (int64_t n : {10, -20}) a.add_q_start(n);
  a.add_kv_start(7);
  a.set_q_stride(2);
  a.set_kv_stride(3);
  m.mutable_lse()->set_want(false);
  m.mutable_options()->set_algorithm(pb::ALGORITHM_FLASH_ATTENTION_1);
  m.mutable_options()->set_deterministic(true);
  m.mutable_options()->set_priority(pb::PRIORITY_HIGH);
  m.mutable_options()->set_plan(pb::PLAN_GATHER);
  const std::string bytes = m.SerializeAsString();
  Work work;
  const absl::Status status =
      DecodeWork(Op::kForward, Cut(bytes, 100), nullptr, work);
  ASSERT_TRUE(status.ok()) << status;
  const RequestSpec& spec = work.request->spec();
  EXPECT_EQ(spec.op, Op::kForward);
  EXPECT_EQ(spec.layout, Layout::kBshd);
  EXPECT_EQ(spec.scale, 0.5f);
  EXPECT_EQ(spec.softcap, 30.0f);
  EXPECT_TRUE(spec.mask.causal);
  EXPECT_EQ(spec.mask.left, 4);
  EXPECT_EQ(spec.mask.right, -1);
  EXPECT_THAT(spec.q_lens, ElementsAre(3, 2));
  EXPECT_THAT(spec.kv_lens, ElementsAre(5, 0));
  EXPECT_THAT(spec.q_start, ElementsAre(10, -20));
  EXPECT_EQ(spec.q_stride, 2);
  EXPECT_EQ(spec.kv_stride, 3);
  EXPECT_EQ(spec.algorithm, Algorithm::kFlashAttention1);
  EXPECT_TRUE(spec.deterministic);
  EXPECT_EQ(spec.plan, PlanKind::kGather);
  EXPECT_TRUE(work.request->output(TensorId::kO).present);
  EXPECT_FALSE(work.request->output(TensorId::kLse).present);
  EXPECT_EQ(work.priority, Priority::kHigh);
}

TEST(DecodeWork, DefaultsAreThoseOfTheProto) {
  const std::string bytes = GoodBackward().SerializeAsString();
  Work work;
  const absl::Status status = DecodeWork(Op::kBackward, {bytes}, nullptr, work);
  ASSERT_TRUE(status.ok()) << status;
  const RequestSpec& spec = work.request->spec();
  EXPECT_EQ(spec.op, Op::kBackward);
  EXPECT_FALSE(spec.mask.causal);
  EXPECT_EQ(spec.mask.left, -1);
  EXPECT_EQ(spec.mask.right, -1);
  EXPECT_EQ(spec.q_stride, 1);
  EXPECT_EQ(spec.kv_stride, 1);
  EXPECT_EQ(spec.algorithm, Algorithm::kAuto);
  EXPECT_EQ(spec.plan, PlanKind::kAuto);
  EXPECT_EQ(work.priority, Priority::kNormal);
  for (TensorId id : {TensorId::kDQ, TensorId::kDK, TensorId::kDV}) {
    EXPECT_TRUE(work.request->output(id).present);
  }
}

TEST(DecodeWork, KnowsEveryPlan) {
  constexpr std::pair<pb::Plan, PlanKind> kPlans[] = {
      {pb::PLAN_UNSPECIFIED, PlanKind::kAuto},
      {pb::PLAN_AUTO, PlanKind::kAuto},
      {pb::PLAN_ONE_DEVICE, PlanKind::kOneDevice},
      {pb::PLAN_HEADS, PlanKind::kHeads},
      {pb::PLAN_GATHER, PlanKind::kGather},
      {pb::PLAN_RING, PlanKind::kRing},
      {pb::PLAN_STRIPED, PlanKind::kStriped},
      {pb::PLAN_ZIGZAG, PlanKind::kZigzag},
      {pb::PLAN_KV, PlanKind::kKv}};
  EXPECT_EQ(std::size(kPlans), pb::Plan_descriptor()->value_count());
  for (const auto& [plan, kind] : kPlans) {
    pb::ForwardRequest m = GoodForward();
    m.mutable_options()->set_plan(plan);
    const std::string bytes = m.SerializeAsString();
    Work work;
    const absl::Status status =
        DecodeWork(Op::kForward, {bytes}, nullptr, work);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(work.request->spec().plan, kind) << pb::Plan_Name(plan);
  }
}

TEST(DecodeWork, AcceptsATensorWithoutElements) {
  pb::ForwardRequest m;
  *m.mutable_q() = RandomTensor({2, 0, 4, 8});
  *m.mutable_k() = RandomTensor({2, 5, 2, 8});
  *m.mutable_v() = RandomTensor({2, 5, 2, 6});
  const std::string bytes = m.SerializeAsString();
  Work work;
  const absl::Status status = DecodeWork(Op::kForward, {bytes}, nullptr, work);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(DecodeWork, NamesWhatIsWrong) {
  for (const BadRequest& bad : BadRequests()) {
    for (size_t size : {size_t{3}, bad.bytes.size() + 1}) {
      Work work;
      EXPECT_EQ(Mismatch(bad, DecodeWork(bad.op, Cut(bad.bytes, size), nullptr,
                                         work)),
                "");
    }
  }
}

}  // namespace
}  // namespace attnd::server
