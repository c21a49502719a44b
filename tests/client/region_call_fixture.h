#ifndef ATTND_TESTS_CLIENT_REGION_CALL_FIXTURE_H_
#define ATTND_TESTS_CLIENT_REGION_CALL_FIXTURE_H_

// Calls whose tensors lie in regions, over a transport stepped by hand.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "attn/v1/attention.pb.h"
#include "tests/client/core_testing.h"
#include "tests/client/fake_region.h"
#include "tests/client/transfer_testing.h"

namespace attnd::client {

class RegionCallTest : public CoreTest {
 protected:
  // Has the client know a region of the host's, or of a GPU's.
  std::shared_ptr<FakeRegion> AddRegion(
      int64_t bytes, bool on_device = false,
      const std::string& id = "sixteen secret b") {
    auto region = std::make_shared<FakeRegion>(bytes, on_device, id);
    client_->AddRegion(region);
    return region;
  }

  // CoreTest's call with its tensors at 0, 1024, ... of `region`.
  ForwardCall CallIn(const FakeRegion& region) {
    ForwardCall call = Call();
    call.q.data = region.at(0);
    call.k.data = region.at(1024);
    call.v.data = region.at(2048);
    call.o.data = region.at(3072);
    call.lse.data = region.at(4096);
    return call;
  }
  static constexpr int64_t kCallBytes = 5120;

  static void SetPlace(attn::v1::Tensor& tensor, const FakeRegion& region,
                       int64_t offset) {
    tensor.mutable_region()->set_region(region.id());
    tensor.mutable_region()->set_offset(offset);
  }
  // What a server answers to that call.
  attn::v1::ForwardResponse ResponseIn(const FakeRegion& region) {
    attn::v1::ForwardResponse response = GoodResponse();
    SetPlace(*response.mutable_o(), region, 3072);
    SetPlace(*response.mutable_lse(), region, 4096);
    return response;
  }

  void Start(const ForwardCall& call, CallOptions options = {}) {
    result_.reset();
    cancel_ = client_->ForwardAsync(
        call, options,
        [this](absl::StatusOr<Report> report) { result_ = std::move(report); });
    executor_->RunReady();
  }
  // What has been sent last, as a unary call.
  attn::v1::ForwardRequest Sent() {
    attn::v1::ForwardRequest request;
    EXPECT_TRUE(request.ParseFromString(
        transport_->at(transport_->size() - 1).Bytes()));
    return request;
  }
  void Answer(const attn::v1::ForwardResponse& response) {
    transport_->Answer(transport_->size() - 1, response.SerializeAsString());
    executor_->RunReady();
  }
  void Refuse(absl::Status status) {
    transport_->Answer(transport_->size() - 1,
                       Transport::Result(std::move(status)));
    executor_->RunReady();
  }
  FakeStream& stream(size_t index) { return transport_->streams.at(index); }
  void EndStream(size_t index, absl::Status status) {
    stream(index).End(std::move(status));
    executor_->RunReady();
  }
  const Report& Done() {
    static const auto& none = *new Report();
    if (!result_.has_value() || !result_->ok()) {
      ADD_FAILURE() << (result_.has_value() ? result_->status()
                                            : absl::UnknownError("not done"));
      return none;
    }
    return **result_;
  }
  absl::Status Failed() {
    if (result_.has_value() && !result_->ok()) return result_->status();
    ADD_FAILURE() << (result_.has_value() ? "succeeded" : "not done");
    return absl::OkStatus();
  }

  std::optional<absl::StatusOr<Report>> result_;
  std::function<void()> cancel_;
};

}  // namespace attnd::client

#endif  // ATTND_TESTS_CLIENT_REGION_CALL_FIXTURE_H_
