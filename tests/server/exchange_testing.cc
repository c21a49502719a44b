#include "tests/server/exchange_testing.h"

#include <random>
#include <thread>

namespace attnd::server {
namespace {

std::string RandomBytes(int64_t size, std::mt19937& random) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

}  // namespace

ExchangeTest::Tensors::Tensors(int64_t length, uint32_t seed) : len(length) {
  std::mt19937 random(seed);
  for (std::string* tensor : {&q, &k, &v}) {
    *tensor = RandomBytes(len * kRowBytes, random);
  }
}

pb::ExchangeRequest ExchangeTest::Header(const Tensors& tensors, int streams) {
  pb::ExchangeRequest request;
  pb::ForwardRequest& forward = *request.mutable_header()->mutable_forward();
  for (pb::Tensor* tensor :
       {forward.mutable_q(), forward.mutable_k(), forward.mutable_v()}) {
    tensor->set_dtype(pb::DATA_TYPE_F32);
    for (int64_t dim : {int64_t{1}, tensors.len, int64_t{1}, int64_t{64}}) {
      tensor->add_shape(dim);
    }
    tensor->mutable_streamed();
  }
  forward.mutable_o()->mutable_streamed();
  request.mutable_header()->set_streams(streams);
  request.mutable_header()->set_chunk_bytes(kChunk);
  return request;
}

pb::ExchangeRequest ExchangeTest::Chunk(const Tensors& tensors, int number,
                                        int64_t index) {
  pb::ExchangeRequest request;
  pb::Chunk& chunk = *request.mutable_chunk();
  chunk.set_tensor(number);
  chunk.set_offset(index * kChunk);
  chunk.set_data(tensors.of(number).substr(index * kChunk, kChunk));
  return request;
}

pb::ExchangeRequest ExchangeTest::InputsSent(int streams) {
  pb::ExchangeRequest request;
  request.mutable_inputs_sent()->set_streams(streams);
  return request;
}

pb::ExchangeRequest ExchangeTest::JoinTo(const pb::Admitted& admitted) {
  pb::ExchangeRequest request;
  request.mutable_join()->set_transfer(admitted.transfer());
  return request;
}

ExchangeTest::~ExchangeTest() {
  if (transfers_ != nullptr) {
    transfers_->EndAll(absl::UnavailableError("the test is over"));
  }
  alarms_.reset();
  manual_.FinishAll();
}

void ExchangeTest::UseScheduler(const SchedulerOptions& options,
                                std::vector<Backend*> backends) {
  alarms_ = std::make_unique<Alarms>();
  scheduler_ = MakeScheduler(options, std::move(backends));
  StallAfter(stall_time_);
}

void ExchangeTest::StallAfter(absl::Duration time) {
  stall_time_ = time;
  transfers_ = std::make_unique<TransferTable>(
      TransferParts{scheduler_.get(), alarms_.get(), time}, 4, excess_memory_);
  parts_.scheduler = scheduler_.get();
  parts_.calls = &calls_;
  parts_.admitted_calls = &admitted_calls_;
  parts_.uploads = &uploads_;
  parts_.transfers = transfers_.get();
  parts_.alarms = alarms_.get();
  parts_.excess_memory = excess_memory_;
  parts_.max_message_bytes = 16 * kMiB;
  parts_.stall_time = time;
  parts_.header_time = time;
}

void ExchangeTest::Put(const pb::Chunk& chunk, std::string& o) {
  EXPECT_EQ(chunk.tensor(), pb::ForwardResponse::kOFieldNumber);
  ASSERT_LE(chunk.offset() + static_cast<int64_t>(chunk.data().size()),
            static_cast<int64_t>(o.size()));
  o.replace(chunk.offset(), chunk.data().size(), chunk.data());
}

void ExchangeTest::TakeRest(TestStream& joined, std::string& o) {
  while (!joined.fake().has_ended()) {
    if (joined.fake().is_writing()) Put(joined.Take().chunk(), o);
  }
  EXPECT_EQ(joined.AwaitEnd(), absl::OkStatus());
}

pb::ForwardResponse ExchangeTest::TakeResults(TestStream& stream,
                                              std::string& o) {
  for (;;) {
    const pb::ExchangeResponse response = stream.Take();
    if (response.has_forward()) return response.forward();
    EXPECT_TRUE(response.has_chunk()) << response.DebugString();
    if (!response.has_chunk()) return {};
    Put(response.chunk(), o);
  }
}

void ExchangeTest::ExpectNothingHeld() {
  while (scheduler_->stats().account_bytes > 0 ||
         uploads_.stats().reserved_bytes > 0) {
    std::this_thread::yield();
  }
  EXPECT_EQ(transfers_->size(), 0);
  EXPECT_EQ(scheduler_->stats().queued_requests, 0);
}

void ExchangeTest::ExpectServes() {
  const Tensors tensors(300, /*seed=*/2);
  auto stream = Begin(tensors);
  SendAll(*stream, tensors);
  std::string o(tensors.q.size(), '\xff');
  TakeResults(*stream, o);
  EXPECT_EQ(o, tensors.q);
  stream->HalfClose();
  EXPECT_EQ(stream->AwaitEnd(), absl::OkStatus());
  stream->Close();
  ExpectNothingHeld();
}

}  // namespace attnd::server
