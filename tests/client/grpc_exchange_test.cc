// Exchanges over real gRPC, against a server in this process that speaks plain
// protobuf.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "attn/v1/attention.grpc.pb.h"
#include "attnd/client.h"
#include "proto/wire/metadata.h"
#include "tests/hang_limit.h"

namespace attnd::client {
namespace {

namespace v1 = ::attn::v1;

// Answers O = Q. Results go over all streams of a transfer, each of which takes
// the next chunk when it has sent one.
class EchoExchange final : public v1::AttentionService::Service {
 public:
  using Stream =
      grpc::ServerReaderWriter<v1::ExchangeResponse, v1::ExchangeRequest>;

  grpc::Status Exchange(grpc::ServerContext* context, Stream* stream) override {
    v1::ExchangeRequest first;
    if (!stream->Read(&first)) return grpc::Status::CANCELLED;
    const auto bytes = context->client_metadata().find(wire::kRequestBytesKey);
    EXPECT_TRUE(bytes != context->client_metadata().end());
    EXPECT_EQ(std::string(bytes->second.begin(), bytes->second.end()),
              absl::StrCat(first.ByteSizeLong()));
    {
      std::lock_guard<std::mutex> lock(mutex_);
      peers.insert(context->peer());
    }
    return first.has_header() ? Main(first.header(), *stream)
                              : Joined(first.join().transfer(), *stream);
  }

  // Of joined streams: chunks that are lost, one in so many; 0: none.
  int loses_inputs = 0, loses_results = 0;
  bool breaks = false;  // joined streams, at their first chunk
  // The first stream reads nothing between these.
  struct Stuck {
    absl::Notification begun, over;
  };
  std::shared_ptr<Stuck> stuck;
  std::set<std::string> peers;

 private:
  static constexpr int64_t kChunk = 64 << 10;

  struct Transfer {
    v1::Tensor q;
    std::string data;
    std::set<int64_t> missing;  // inputs, by offset
    std::set<int64_t> results;  // to be sent
    int open = 0;               // joined streams
    bool all_sent = false;      // of the inputs
    bool over = false;
  };

  grpc::Status Main(const v1::ExchangeHeader& header, Stream& stream) {
    Transfer transfer;
    transfer.q = header.forward().q();
    transfer.data.assign(header.forward().q().shape(1) * 64 * 4, '\0');
    for (int64_t at = 0; at < transfer.data.size(); at += kChunk) {
      transfer.missing.insert(at);
      transfer.results.insert(at);
    }
    v1::ExchangeResponse admitted;
    admitted.mutable_admitted()->set_transfer("the only one");
    admitted.mutable_admitted()->set_streams(std::max(header.streams(), 1));
    admitted.mutable_admitted()->set_chunk_bytes(kChunk);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      transfer_ = &transfer;
    }
    stream.Write(admitted);
    if (const std::shared_ptr<Stuck> here = stuck) {
      here->begun.Notify();
      here->over.WaitForNotification();
    }
    grpc::Status status = Serve(transfer, stream);
    std::unique_lock<std::mutex> lock(mutex_);
    transfer_ = nullptr;
    transfer.over = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return transfer.open == 0; });
    return status;
  }

  grpc::Status Serve(Transfer& transfer, Stream& stream) {
    v1::ExchangeRequest request;
    while (stream.Read(&request) && request.has_chunk()) {
      Store(request.chunk(), transfer);
    }
    if (!request.has_inputs_sent()) return grpc::Status::CANCELLED;
    v1::ExchangeResponse ask;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      transfer.all_sent = true;
      changed_.notify_all();
      changed_.wait(
          lock, [&] { return transfer.missing.empty() || transfer.open == 0; });
      for (const int64_t at : transfer.missing) {
        auto& range = *ask.mutable_missing()->add_ranges();
        range.set_tensor(v1::ForwardRequest::kQFieldNumber);
        range.set_offset(at);
        range.set_bytes(std::min<int64_t>(kChunk, transfer.data.size() - at));
      }
    }
    if (ask.has_missing()) stream.Write(ask);
    for (int i = 0; i < ask.missing().ranges_size(); ++i) {
      if (!stream.Read(&request)) return grpc::Status::CANCELLED;
      Store(request.chunk(), transfer);
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      EXPECT_TRUE(transfer.missing.empty());
      changed_.notify_all();
    }
    SendResults(transfer, stream, 0);
    v1::ExchangeResponse response;
    v1::Tensor& o = *response.mutable_forward()->mutable_o();
    o = transfer.q;
    o.mutable_streamed();
    stream.Write(response);
    while (stream.Read(&request)) {
      for (const auto& range : request.missing().ranges()) {
        for (int64_t at = 0; at < range.bytes(); at += kChunk) {
          transfer.results.insert(range.offset() + at);
        }
      }
      SendResults(transfer, stream, 0);
    }
    return grpc::Status::OK;
  }

  grpc::Status Joined(const std::string& id, Stream& stream) {
    Transfer* transfer = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (transfer_ == nullptr || id != "the only one") {
        return {grpc::StatusCode::NOT_FOUND, "no such transfer"};
      }
      transfer = transfer_;
      ++transfer->open;
    }
    v1::ExchangeRequest request;
    bool broke = false;
    for (int i = 1; !broke && stream.Read(&request); ++i) {
      broke = breaks;
      if (broke || (loses_inputs > 0 && i % loses_inputs == 0)) continue;
      Store(request.chunk(), *transfer);
    }
    if (!broke && AllInputsCame(*transfer)) {
      SendResults(*transfer, stream, loses_results);
    }
    std::lock_guard<std::mutex> lock(mutex_);
    --transfer->open;
    changed_.notify_all();
    return broke ? grpc::Status(grpc::StatusCode::ABORTED, "broke")
                 : grpc::Status::OK;
  }

  // Waits until it is known. A stream that has lost inputs ends.
  bool AllInputsCame(Transfer& transfer) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (loses_inputs > 0) return false;
    changed_.wait(lock, [&] { return transfer.all_sent || transfer.over; });
    return transfer.missing.empty();
  }

  void Store(const v1::Chunk& chunk, Transfer& transfer) {
    std::copy(chunk.data().begin(), chunk.data().end(),
              transfer.data.begin() + chunk.offset());
    std::lock_guard<std::mutex> lock(mutex_);
    transfer.missing.erase(chunk.offset());
    changed_.notify_all();
  }

  void SendResults(Transfer& transfer, Stream& stream, int loses) {
    for (int i = 1;; ++i) {
      v1::ExchangeResponse message;
      v1::Chunk& chunk = *message.mutable_chunk();
      {
        std::lock_guard<std::mutex> lock(mutex_);
        if (transfer.results.empty()) return;
        chunk.set_offset(
            transfer.results.extract(transfer.results.begin()).value());
      }
      chunk.set_tensor(v1::ForwardResponse::kOFieldNumber);
      chunk.set_data(transfer.data.substr(chunk.offset(), kChunk));
      if (loses > 0 && i % loses == 0) continue;
      stream.Write(message);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  Transfer* transfer_ = nullptr;
};

struct Example {
  explicit Example(int64_t tokens) : q(tokens * 64), o(q.size(), -1) {
    std::iota(q.begin(), q.end(), 0.5f);
    const std::vector<int64_t> shape = {1, tokens, 1, 64};
    call.q = {DType::kF32, shape, q.data()};
    call.k = call.v = {DType::kF32, {1, 1, 1, 64}, q.data()};
    call.o = {DType::kF32, shape, o.data()};
  }

  std::vector<float> q, o;
  ForwardCall call;
};

// Over a TCP connection or a unix socket.
class GrpcExchangeTest : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr int64_t kTokens = 200'001;  // 49 MiB each way

  GrpcExchangeTest() {
    const std::string path =
        absl::StrCat(::testing::TempDir(), "/exchange", getpid());
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(GetParam() ? "unix:" + path : "127.0.0.1:0",
                             grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    target_ = GetParam() ? "unix:" + path : absl::StrCat("127.0.0.1:", port);
  }

  std::unique_ptr<Client> MakeClient(int connections) const {
    ClientOptions options;
    options.connections = connections;
    auto client = Client::Create(target_, options);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }
  Report ExpectEchoed(Client& client) {
    Example example(kTokens);
    const auto report = client.Forward(example.call, {testing::kHangLimit});
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(example.o == example.q);
    return report.value_or(Report());
  }

  EchoExchange service_;
  std::unique_ptr<grpc::Server> server_;
  std::string target_;
};

TEST_P(GrpcExchangeTest, OneConnectionCarriesAll) {
  const auto client = MakeClient(1);
  const Report report = ExpectEchoed(*client);
  EXPECT_EQ(report.transport, TransportKind::kStream);
  EXPECT_GE(report.streams, 1);
  EXPECT_LE(report.streams, 2);
}

TEST_P(GrpcExchangeTest, StreamsAreOnConnectionsOfTheirOwn) {
  const auto client = MakeClient(4);
  for (int i = 0; i < 3; ++i) {
    const Report report = ExpectEchoed(*client);
    EXPECT_LE(report.streams, 8);
  }
  // Peers of a unix socket have no names.
  if (!GetParam()) {
    EXPECT_EQ(service_.peers.size(), 4);
  }
}

TEST_P(GrpcExchangeTest, WhatJoinedStreamsLoseIsSentAgain) {
  const auto client = MakeClient(4);
  ExpectEchoed(*client);  // all are connected
  service_.loses_inputs = 3;
  ExpectEchoed(*client);
  service_.loses_inputs = 0;
  service_.loses_results = 2;
  ExpectEchoed(*client);
  service_.loses_results = 0;
  service_.breaks = true;
  ExpectEchoed(*client);
}

TEST_P(GrpcExchangeTest, CancelledWhileItWritesItLetsGoOfItsMemory) {
  const auto client = MakeClient(3);
  for (int round = 0; round < 3; ++round) {
    const auto stuck = std::make_shared<EchoExchange::Stuck>();
    absl::Notification ended;
    service_.stuck = stuck;
    auto example = std::make_unique<Example>(kTokens);
    absl::Status status;
    const auto cancel = client->ForwardAsync(
        example->call, {testing::kHangLimit}, [&](absl::StatusOr<Report> r) {
          example.reset();
          status = r.status();
          ended.Notify();
        });
    stuck->begun.WaitForNotification();
    cancel();
    ended.WaitForNotification();
    stuck->over.Notify();
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
  }
  service_.stuck = nullptr;
  ExpectEchoed(*client);
}

TEST_P(GrpcExchangeTest, EndsAtItsDeadline) {
  const auto client = MakeClient(2);
  const auto stuck = std::make_shared<EchoExchange::Stuck>();
  service_.stuck = stuck;
  Example example(kTokens);
  const auto report = client->Forward(example.call, {absl::Milliseconds(200)});
  stuck->over.Notify();
  EXPECT_TRUE(absl::IsDeadlineExceeded(report.status())) << report.status();
}

INSTANTIATE_TEST_SUITE_P(Sockets, GrpcExchangeTest, ::testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "Unix" : "Tcp";
                         });

}  // namespace
}  // namespace attnd::client
