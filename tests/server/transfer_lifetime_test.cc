#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "attn/v1/attention.pb.h"
#include "gtest/gtest.h"
#include "server/front/decode.h"
#include "server/transfer/transfer.h"
#include "server/transfer/transfer_table.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/scheduler_testing.h"

namespace attnd::server {
namespace {

// Takes all that it is told, and says nothing.
class SilentStream final : public TransferStream {
 public:
  void Read() override {}
  void SendAdmitted(const std::string&, int, int64_t) override {}
  void SendMissing(const std::vector<TensorRange>&) override {}
  void SendChunk(TensorId, int64_t, ConstHostSpan, std::shared_ptr<const void>,
                 bool) override {}
  void SendResult(const TransferResult&) override {}
  void End(const absl::Status&) override {}
};

std::shared_ptr<attn::v1::ExchangeRequest> StreamedForward() {
  auto request = std::make_shared<attn::v1::ExchangeRequest>();
  auto& forward = *request->mutable_header()->mutable_forward();
  for (auto* tensor :
       {forward.mutable_q(), forward.mutable_k(), forward.mutable_v()}) {
    tensor->set_dtype(attn::v1::DATA_TYPE_F32);
    for (int dim : {1, 4, 1, 8}) tensor->add_shape(dim);
    tensor->mutable_streamed();
  }
  return request;
}

TEST(TransferLifetime, NothingOfOneIsLeftThatEndsBeforeItsInputsAreHere) {
  IdentityBackend backend;
  const auto scheduler = MakeScheduler(OneLane(), {&backend});
  Alarms alarms;
  TransferTable table({scheduler.get(), &alarms, absl::Hours(1)},
                      /*max_streams=*/1, /*excess_memory=*/nullptr);
  auto spec = DecodeExchangeHeader(StreamedForward(), nullptr);
  ASSERT_TRUE(spec.ok()) << spec.status();
  const std::weak_ptr<Work> work = spec->work;
  auto opened = table.Open(
      *spec, [](int64_t) { return true; }, nullptr);
  ASSERT_TRUE(opened.ok()) << opened.status();
  auto transfer = *std::exchange(opened, nullptr);
  *spec = {};
  transfer->Begin(std::make_shared<SilentStream>());
  transfer->End(absl::UnavailableError("the first stream broke"));
  const std::weak_ptr<Transfer> left = std::exchange(transfer, nullptr);
  EXPECT_TRUE(left.expired());
  EXPECT_TRUE(work.expired());
}

}  // namespace
}  // namespace attnd::server
