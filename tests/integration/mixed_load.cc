#include "tests/integration/mixed_load.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "attn/v1/attention.pb.h"
#include "grpcpp/client_context.h"
#include "tests/integration/rpc.h"
#include "tests/server/bad_requests.h"

namespace attnd::testing {
namespace {

namespace pb = ::attn::v1;
using server::RandomTensor;

grpc::ByteBuffer ToBuffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

template <typename Message>
void SetInputs(int64_t len, int64_t heads, int64_t dim, Message& m) {
  *m.mutable_q() = RandomTensor({1, len, heads, dim});
  *m.mutable_k() = RandomTensor({1, len, heads, dim});
  *m.mutable_v() = RandomTensor({1, len, heads, dim});
  m.mutable_attention()->mutable_mask()->set_causal(true);
}

std::string SomeForward(int64_t len, int64_t heads, int64_t dim) {
  pb::ForwardRequest m;
  SetInputs(len, heads, dim, m);
  return m.SerializeAsString();
}

std::string SomeBackward(int64_t len, int64_t heads, int64_t dim) {
  pb::BackwardRequest m;
  SetInputs(len, heads, dim, m);
  *m.mutable_d_o() = RandomTensor({1, len, heads, dim});
  *m.mutable_o() = RandomTensor({1, len, heads, dim});
  *m.mutable_lse() = RandomTensor({1, heads, len});
  return m.SerializeAsString();
}

}  // namespace

struct MixedLoad::Call {
  grpc::ClientContext context;
  grpc::ByteBuffer response;
};

MixedLoad::MixedLoad(const std::vector<std::string>& targets, Mix mix) {
  for (const std::string& target : targets) {
    stubs_.push_back(std::make_unique<grpc::GenericStub>(Connect(target)));
  }
  mix == Mix::kLarge ? AddLarge() : AddEverything();
  std::shuffle(kinds_.begin(), kinds_.end(), std::minstd_rand(1));
}

void MixedLoad::Add(int copies, Op op, const std::string& bytes, End end) {
  kinds_.insert(kinds_.end(), copies, {op, ToBuffer(bytes), end});
}

// Few rows and many columns: bytes, not work. And many sequences of none.
void MixedLoad::AddLarge() {
  pb::ForwardRequest empty;
  empty.mutable_attention()->set_layout(pb::LAYOUT_PACKED);
  for (int i = 0; i < 1 << 14; ++i) {
    empty.mutable_attention()->add_q_lens(0);
    empty.mutable_attention()->add_kv_lens(0);
  }
  for (pb::Tensor* tensor :
       {empty.mutable_q(), empty.mutable_k(), empty.mutable_v()}) {
    *tensor = RandomTensor({0, 1, 8});
  }
  Add(16, Op::kForward, empty.SerializeAsString());
  for (int64_t len : {6144, 12288, 24576, 36864}) {
    pb::ForwardRequest m;
    *m.mutable_q() = RandomTensor({1, 2, 1, 128});
    *m.mutable_k() = RandomTensor({1, len, 1, 128});
    *m.mutable_v() = RandomTensor({1, len, 1, 128});
    Add(3, Op::kForward, m.SerializeAsString());
    Add(1, Op::kForward, m.SerializeAsString(), End::kCancelled);
  }
}

// The kinds of 100 consecutive calls.
void MixedLoad::AddEverything() {
  Add(25, Op::kForward, SomeForward(1, 1, 64));
  Add(15, Op::kForward, SomeForward(17, 2, 32));
  Add(10, Op::kForward, SomeForward(64, 4, 64));
  Add(4, Op::kForward, SomeForward(200, 4, 64));
  Add(2, Op::kForward, SomeForward(512, 8, 64));
  Add(10, Op::kBackward, SomeBackward(20, 2, 32));
  Add(3, Op::kBackward, SomeBackward(100, 4, 64));
  Add(8, Op::kForward, SomeForward(64, 4, 64), End::kCancelled);
  Add(2, Op::kForward, SomeForward(512, 8, 64), End::kCancelled);
  Add(4, Op::kBackward, SomeBackward(20, 2, 32), End::kDeadline);
  Add(4, Op::kForward, SomeForward(200, 4, 64), End::kDeadline);
  const std::vector<server::BadRequest> bad = server::BadRequests();
  for (int i = 0; kinds_.size() < 100; ++i) {
    Add(1, bad[5 * i % bad.size()].op, bad[5 * i % bad.size()].bytes);
  }
}

void MixedLoad::Run(int calls) {
  for (int i = 0; i < calls; ++i, ++started_) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return running_ < kAtOnce; });
      ++running_;
    }
    Start(kinds_[started_ % kinds_.size()], *stubs_[started_ % stubs_.size()]);
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return running_ == 0; });
}

void MixedLoad::Start(const Kind& kind, grpc::GenericStub& stub) {
  auto call = std::make_shared<Call>();
  const bool counted = kind.end == End::kItself;
  call->context.set_deadline(absl::ToChronoTime(
      absl::Now() + (kind.end == End::kDeadline ? absl::Milliseconds(2)
                                                : absl::Seconds(60))));
  stub.UnaryCall(&call->context,
                 kind.op == Op::kForward ? "/attn.v1.AttentionService/Forward"
                                         : "/attn.v1.AttentionService/Backward",
                 grpc::StubOptions(), &kind.request, &call->response,
                 [this, call, counted](const grpc::Status& status) {
                   if (counted) ++codes_.at(status.error_code());
                   std::lock_guard lock(mutex_);
                   --running_;
                   changed_.notify_all();
                 });
  if (kind.end == End::kCancelled) call->context.TryCancel();
}

}  // namespace attnd::testing
