// No field of what an Exchange or GetServerInfo brings is ignored: as
// tests/server/request_fields_test.cc, which has those of the calls in headers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "attn/v1/attention.grpc.pb.h"
#include "proto/wire/grpc_status.h"
#include "server/server.h"
#include "tests/hang_limit.h"
#include "tests/integration/exchange_parts.h"
#include "tests/integration/rpc.h"
#include "tests/proto/routes.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/field_uses.h"

namespace attnd::testing {
namespace {

namespace pb = ::attn::v1;
using ::testing::IsEmpty;
using wire::testing::FieldPaths;
using wire::testing::Route;
using wire::testing::Routes;
using wire::testing::SetUndeclared;
using wire::testing::Undeclared;
using wire::testing::WithField;

// One stream of an Exchange.
class Stream {
 public:
  explicit Stream(pb::AttentionService::Stub& stub) {
    context_.set_deadline(absl::ToChronoTime(absl::Now() + kHangLimit));
    stream_ = stub.Exchange(&context_);
  }
  ~Stream() { context_.TryCancel(); }

  // A refused stream takes no more: End says why.
  void Send(const pb::ExchangeRequest& part) { stream_->Write(part); }
  void Send(const std::string& text) { Send(Part(text)); }
  pb::ExchangeResponse Read() {
    pb::ExchangeResponse response;
    stream_->Read(&response);
    return response;
  }
  // Ends the client's side and reads what is left.
  absl::Status End() {
    stream_->WritesDone();
    pb::ExchangeResponse response;
    while (stream_->Read(&response)) rest_.push_back(response);
    return wire::FromGrpcStatus(stream_->Finish());
  }
  const std::vector<pb::ExchangeResponse>& rest() const { return rest_; }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<
      grpc::ClientReaderWriter<pb::ExchangeRequest, pb::ExchangeResponse>>
      stream_;
  std::vector<pb::ExchangeResponse> rest_;
};

class ExchangeFieldsTest : public ::testing::Test {
 public:
  ExchangeFieldsTest() {
    server::ServerOptions options;
    options.memory_limit_bytes = 256 << 20;
    std::vector<std::unique_ptr<Backend>> devices;
    devices.push_back(std::make_unique<server::IdentityBackend>());
    auto server = server::Server::Start(options, std::move(devices));
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = pb::AttentionService::NewStub(
        Connect(absl::StrCat("127.0.0.1:", server_->port())));
  }

  // Each sends `part` where it belongs, and says what the server made of it.
  std::string Granted(const pb::ExchangeRequest& part) {
    Stream stream(*stub_);
    stream.Send(part);
    const pb::Admitted admitted = stream.Read().admitted();
    return absl::StrCat(admitted.streams(), " streams, chunks of ",
                        admitted.chunk_bytes());
  }
  // TRANSFER stands for the transfer's own.
  std::string Joined(pb::ExchangeRequest part) {
    Stream first(*stub_), second(*stub_);
    pb::ExchangeRequest header = Part(Header());
    header.mutable_header()->set_streams(2);
    first.Send(header);
    const std::string token = first.Read().admitted().transfer();
    if (part.join().transfer() == "TRANSFER") {
      part.mutable_join()->set_transfer(token);
    }
    second.Send(part);
    second.Send(Chunk(1, 0));
    SendChunks(first, /*but_first=*/true);
    if (!part.join().transfer().empty()) {
      first.Send("inputs_sent { streams: 1 }");
      EXPECT_EQ(first.End(), absl::OkStatus());
    }
    return absl::StatusCodeToString(second.End().code());
  }
  std::string MissingAfter(const pb::ExchangeRequest& part) {
    Stream stream(*stub_);
    Begin(stream, Header());
    stream.Send(part);
    stream.Send("inputs_sent {}");
    return Describe(stream.Read().missing());
  }
  std::string ResultOf(const pb::ExchangeRequest& part) {
    Stream stream(*stub_);
    Begin(stream, Header());
    stream.Send(part);
    SendChunks(stream, /*but_first=*/true);
    EXPECT_EQ(stream.End(), absl::OkStatus());
    return stream.rest().back().forward().o().data().substr(0, 1);
  }
  std::string AnswersTo(const pb::ExchangeRequest& part) {
    Stream stream(*stub_);
    pb::ExchangeRequest header = Part(Header());
    header.mutable_header()->set_streams(2);
    stream.Send(header);
    EXPECT_TRUE(stream.Read().has_admitted());
    stream.Send(part);
    SendChunks(stream, /*but_first=*/false);
    EXPECT_EQ(stream.End(), absl::OkStatus());
    return stream.rest().front().has_missing() ? "missing" : "forward";
  }
  std::string SentAgain(const pb::ExchangeRequest& part) {
    Stream stream(*stub_);
    Begin(stream, BackwardHeader());
    while (stream.Read().has_chunk()) continue;
    stream.Send(part);
    EXPECT_EQ(stream.End(), absl::OkStatus());
    return absl::StrJoin(stream.rest(), ", ",
                         [](std::string* out, const auto& response) {
                           absl::StrAppend(out, response.chunk().tensor(), ": ",
                                           response.chunk().offset() / kChunk);
                         });
  }

  static void Begin(Stream& stream, const std::string& header) {
    stream.Send(header);
    EXPECT_TRUE(stream.Read().has_admitted());
  }
  static void SendChunks(Stream& stream, bool but_first) {
    for (int tensor : {1, 2, 3}) {
      for (int index : {0, 1}) {
        if (but_first && tensor == 1 && index == 0) continue;
        stream.Send(Chunk(tensor, index));
      }
    }
  }

  std::unique_ptr<server::Server> server_;
  std::unique_ptr<pb::AttentionService::Stub> stub_;
};

TEST_F(ExchangeFieldsTest, EveryFieldOfAnExchangeIsUsed) {
  using This = ExchangeFieldsTest;
  const std::string data(kChunk, 'b');
  const std::string again = "missing { ranges { tensor: 2 bytes: 65536 } }";
  struct PartUse {
    std::string base;
    FieldUse use;  // its aspect is what is said of the base
    std::function<std::string(This*, const pb::ExchangeRequest&)> talk;
  };
  const PartUse uses[] = {
      {Header(),
       {"header.streams", "header { streams: 3 }", "1 streams, chunks of 65536",
        "3 streams, chunks of 65536"},
       &This::Granted},
      {Header(),
       {"header.chunk_bytes", "header { chunk_bytes: 131072 }",
        "1 streams, chunks of 65536", "1 streams, chunks of 131072"},
       &This::Granted},
      {"join {}",
       {"join.transfer", "join { transfer: 'TRANSFER' }", "NOT_FOUND", "OK"},
       &This::Joined},
      {Chunk(1, 0),
       {"chunk.tensor", "chunk { tensor: 2 }",
        "1: 1 to 2, 2: 0 to 2, 3: 0 to 2", "1: 0 to 2, 2: 1 to 2, 3: 0 to 2"},
       &This::MissingAfter},
      {Chunk(1, 0),
       {"chunk.offset", "chunk { offset: 65536 }",
        "1: 1 to 2, 2: 0 to 2, 3: 0 to 2", "1: 0 to 1, 2: 0 to 2, 3: 0 to 2"},
       &This::MissingAfter},
      {Chunk(1, 0),
       {"chunk.data", absl::StrCat("chunk { data: '", data, "' }"), "a", "b"},
       &This::ResultOf},
      {"inputs_sent {}",
       {"inputs_sent.streams", "inputs_sent { streams: 1 }", "missing",
        "forward"},
       &This::AnswersTo},
      {again,
       {"missing.ranges.tensor", "missing { ranges { tensor: 3 } }", "2: 0",
        "3: 0"},
       &This::SentAgain},
      {again,
       {"missing.ranges.offset", "missing { ranges { offset: 65536 } }", "2: 0",
        "2: 1"},
       &This::SentAgain},
      {again,
       {"missing.ranges.bytes", "missing { ranges { bytes: 131072 } }", "2: 0",
        "2: 0, 2: 1"},
       &This::SentAgain},
  };
  std::set<std::string> paths;
  for (const auto& [base, use, talk] : uses) {
    EXPECT_TRUE(paths.insert(use.path).second) << use.path;
    const pb::ExchangeRequest before = Part(base);
    EXPECT_EQ(talk(this, before), use.aspect) << use.path;
    EXPECT_EQ(talk(this, static_cast<const pb::ExchangeRequest&>(
                             *WithField(before, use.path, use.change))),
              use.becomes)
        << use.path;
  }
  for (const FieldUse& use : UsesOf(Op::kForward)) {
    paths.insert("header.forward." + use.path);
  }
  for (const FieldUse& use : UsesOf(Op::kBackward)) {
    paths.insert("header.backward." + use.path);
  }
  const std::set<std::string> fields =
      FieldPaths(*pb::ExchangeRequest::descriptor());
  EXPECT_THAT(OnlyIn(fields, paths), IsEmpty()) << "not in the table";
  EXPECT_THAT(OnlyIn(paths, fields), IsEmpty()) << "no such fields";
}

TEST_F(ExchangeFieldsTest, ExchangesRefuseEveryOtherNumberAtEveryDepth) {
  for (const Route& route : Routes(*pb::ExchangeRequest::descriptor())) {
    const std::string part = route.empty() ? "" : route[0]->name();
    const bool opens = part == "header" || part == "join";
    for (int number : Undeclared(*pb::ExchangeRequest::descriptor(), route)) {
      for (bool first : {true, false}) {
        // The schema's order, but for what may come anywhere.
        if (!route.empty() && first != opens) continue;
        pb::ExchangeRequest message = Part(first ? Header() : Chunk(1, 0));
        const std::string path = SetUndeclared(route, number, message);
        Stream stream(*stub_);
        if (!first) Begin(stream, Header());
        stream.Send(message);
        EXPECT_EQ(Refusal(stream.End()), absl::StrCat("UNIMPLEMENTED ", path));
      }
    }
  }
}

TEST_F(ExchangeFieldsTest, GetServerInfoRefusesEveryNumber) {
  EXPECT_THAT(FieldPaths(*pb::GetServerInfoRequest::descriptor()), IsEmpty());
  for (int number : Undeclared(*pb::GetServerInfoRequest::descriptor(), {})) {
    pb::GetServerInfoRequest request;
    const std::string path = SetUndeclared({}, number, request);
    grpc::ClientContext context;
    pb::GetServerInfoResponse response;
    EXPECT_EQ(Refusal(wire::FromGrpcStatus(
                  stub_->GetServerInfo(&context, request, &response))),
              absl::StrCat("UNIMPLEMENTED ", path));
  }
}

}  // namespace
}  // namespace attnd::testing
