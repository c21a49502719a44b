#include "tests/integration/mixed_load.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "attn/v1/attention.pb.h"
#include "grpcpp/client_context.h"
#include "tests/integration/process.h"
#include "tests/integration/rpc.h"
#include "tests/server/bad_requests.h"

namespace attnd::testing {
namespace {

namespace pb = ::attn::v1;
using server::RandomTensor;

// A forward of 144 KiB that takes two cores kSlowTime at the very least.
// A sanitizer makes the arithmetic some 15 times slower.
constexpr int64_t kSlowLen = kSanitized ? 3072 : 12288;
constexpr absl::Duration kSlowTime = absl::Milliseconds(20);

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

std::string SlowForward() {
  pb::ForwardRequest m;
  for (pb::Tensor* tensor : {m.mutable_q(), m.mutable_k(), m.mutable_v()}) {
    *tensor = RandomTensor({1, kSlowLen, 1, 1});
  }
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
  Op op = Op::kForward;
  int connection = 0;
  int number = 0;  // in the order they started
  absl::Time started;
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
    Add(1, Op::kForward, m.SerializeAsString(), End::kCancelledAtOnce);
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
  Add(8, Op::kForward, SlowForward(), End::kCancelledOnServer);
  Add(5, Op::kForward, SlowForward(), End::kDeadline);
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
    Start(kinds_[started_ % kinds_.size()], started_ % stubs_.size());
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return running_ == 0; });
}

void MixedLoad::Start(const Kind& kind, int connection) {
  auto call = std::make_shared<Call>();
  call->op = kind.op;
  call->connection = connection;
  call->number = started_;
  call->started = absl::Now();
  call->context.set_deadline(absl::ToChronoTime(
      call->started +
      (kind.end == End::kDeadline ? kSlowTime / 2 : absl::Seconds(60))));
  stubs_[connection]->UnaryCall(
      &call->context,
      kind.op == Op::kForward ? "/attn.v1.AttentionService/Forward"
                              : "/attn.v1.AttentionService/Backward",
      grpc::StubOptions(), &kind.request, &call->response,
      [this, call](const grpc::Status& status) {
        Ended(call, status.error_code());
      });
  if (kind.end == End::kCancelledAtOnce) call->context.TryCancel();
  if (kind.end == End::kCancelledOnServer) {
    std::lock_guard lock(mutex_);
    to_cancel_.push_back(call);
  }
}

// A call whose successor on the same connection has been answered is on the
// server. It is cancelled then if its own answer is surely still to be
// computed: an answer that crosses the cancel would be counted differently
// here and there. Otherwise it runs to its end.
void MixedLoad::Ended(const std::shared_ptr<Call>& call, int code) {
  std::lock_guard lock(mutex_);
  ++codes_[static_cast<int>(call->op)].at(code);
  const absl::Time now = absl::Now();
  to_cancel_.remove_if([&](const std::shared_ptr<Call>& other) {
    if (other == call || now - other->started > kSlowTime * 3 / 4) return true;
    if (other->connection != call->connection || other->number > call->number) {
      return false;
    }
    other->context.TryCancel();
    return true;
  });
  --running_;
  changed_.notify_all();
}

}  // namespace attnd::testing
