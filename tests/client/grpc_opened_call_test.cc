// Calls whose headers go before their message, over real gRPC, against a server
// in this process that hears of both.

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "client/credentials.h"
#include "client/grpc_transport.h"
#include "proto/wire/grpc_status.h"
#include "proto/wire/metadata.h"
#include "proto/wire/status.h"
#include "tests/hang_limit.h"
#include "tests/notification.h"

namespace attnd::client {
namespace {

using ::attnd::testing::kHangLimit;

constexpr char kMethod[] = "/any.Service/Method";
constexpr int64_t kMostBytes = 4096;

// Answers all calls alike, and remembers the first.
class Service final : public grpc::CallbackGenericService {
 public:
  enum class Answer { kEcho, kLate, kStatus, kNothing, kNever };

  Answer answer = Answer::kEcho;
  absl::Status status;  // of kStatus
  std::string method, hint;
  // All that a client said before its message; a message; the client gave up.
  Notification came, read, cancelled;

 private:
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    explicit Reactor(Service& service) : service_(service) {
      StartRead(&message_);
    }
    void OnReadDone(bool ok) override {
      if (!ok) return;
      service_.read.Notify();
      switch (service_.answer) {
        case Answer::kLate:
          StartSendInitialMetadata();
          // Longer than a client polls.
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          [[fallthrough]];
        case Answer::kEcho:
          return StartWriteAndFinish(&message_, grpc::WriteOptions(),
                                     grpc::Status::OK);
        case Answer::kStatus:
          return Finish(wire::ToGrpcStatus(service_.status));
        case Answer::kNothing:
          return Finish(grpc::Status::OK);
        case Answer::kNever:
          return;
      }
    }
    void OnCancel() override {
      service_.cancelled.Notify();
      Finish(grpc::Status::CANCELLED);
    }
    void OnDone() override { delete this; }

   private:
    Service& service_;
    grpc::ByteBuffer message_;
  };

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    method = context->method();
    for (const auto& [key, value] : context->client_metadata()) {
      if (key == wire::kRequestBytesKey) {
        hint.assign(value.data(), value.size());
      }
    }
    came.Notify();
    return new Reactor(*this);
  }
};

class GrpcOpenedCallTest : public ::testing::Test {
 protected:
  GrpcOpenedCallTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
    target_ = absl::StrCat("127.0.0.1:", port);
    pieces_[0].owned = "a header";
    pieces_[0].borrowed = borrowed_;
  }
  ~GrpcOpenedCallTest() override {
    transport_.reset();
    server_->Shutdown(std::chrono::system_clock::now());
  }

  std::unique_ptr<OpenedCall> Open(absl::Duration timeout = kHangLimit,
                                   const ClientOptions& options = {}) {
    transport_ = std::make_unique<GrpcTransport>(
        target_, options, *Credentials::Load(target_, options));
    return transport_->Open(kMethod, kMostBytes,
                            {.deadline = MonotonicNow() + timeout});
  }
  // The answer, or the status.
  absl::StatusOr<std::string> Run(std::unique_ptr<OpenedCall> call) {
    Notification done;
    absl::StatusOr<std::string> answer;
    call->Run(pieces_, [&](Transport::Result result) {
      if (result.ok()) {
        answer.emplace();
        for (absl::string_view part : (*result)->fragments()) {
          answer->append(part.data(), part.size());
        }
      } else {
        answer = result.status();
      }
      done.Notify();
    });
    done.WaitForNotification();
    return answer;
  }
  std::string Sent() const { return "a header" + borrowed_; }

  Service service_;
  std::unique_ptr<grpc::Server> server_;
  std::string target_;
  std::unique_ptr<GrpcTransport> transport_;
  const std::string borrowed_ = std::string(3000, 'b');
  std::vector<wire::Piece> pieces_{1};
};

TEST_F(GrpcOpenedCallTest, TheServerHearsOfItBeforeItsMessage) {
  auto call = Open();
  service_.came.WaitForNotification();
  EXPECT_EQ(service_.method, kMethod);
  EXPECT_EQ(service_.hint, absl::StrCat(kMostBytes));
  EXPECT_FALSE(service_.read.HasBeenNotified());
  const auto answer = Run(std::move(call));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(*answer, Sent());
}

TEST_F(GrpcOpenedCallTest, AnAnswerMayComeLongAfterItsHeaders) {
  service_.answer = Service::Answer::kLate;
  const auto answer = Run(Open());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(*answer, Sent());
}

TEST_F(GrpcOpenedCallTest, WithoutAMessageItIsCancelled) {
  auto call = Open();
  service_.came.WaitForNotification();
  call.reset();
  service_.cancelled.WaitForNotification();
  EXPECT_FALSE(service_.read.HasBeenNotified());
}

TEST_F(GrpcOpenedCallTest, WithoutAMessageItNeedsNoServer) {
  server_->Shutdown();
  Open().reset();
}

TEST_F(GrpcOpenedCallTest, TheServersStatusArrivesWithItsDetails) {
  service_.answer = Service::Answer::kStatus;
  service_.status = wire::FieldError("k.shape", "is odd");
  EXPECT_EQ(Run(Open()).status(), service_.status);
}

TEST_F(GrpcOpenedCallTest, AnAnswerWithoutAMessageIsNone) {
  service_.answer = Service::Answer::kNothing;
  const auto answer = Run(Open());
  EXPECT_TRUE(absl::IsInternal(answer.status())) << answer.status();
}

TEST_F(GrpcOpenedCallTest, EndsAtItsDeadline) {
  service_.answer = Service::Answer::kNever;
  for (const absl::Duration poll : {absl::ZeroDuration(), absl::Hours(1)}) {
    ClientOptions options;
    options.busy_poll = poll;
    const auto answer = Run(Open(absl::Milliseconds(20), options));
    EXPECT_TRUE(absl::IsDeadlineExceeded(answer.status())) << answer.status();
  }
}

TEST_F(GrpcOpenedCallTest, PollsAsLongAsItIsTold) {
  for (const absl::Duration poll : {absl::Microseconds(1), absl::Hours(1)}) {
    ClientOptions options;
    options.busy_poll = poll;
    const auto answer = Run(Open(kHangLimit, options));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(*answer, Sent());
  }
}

TEST_F(GrpcOpenedCallTest, WhatFindsNoServerIsUnavailable) {
  server_->Shutdown();
  const auto answer = Run(Open());
  EXPECT_TRUE(absl::IsUnavailable(answer.status())) << answer.status();
}

TEST_F(GrpcOpenedCallTest, AServerThatGoesMeanwhileEndsIt) {
  auto call = Open();
  service_.came.WaitForNotification();
  server_->Shutdown(std::chrono::system_clock::now());
  EXPECT_FALSE(Run(std::move(call)).ok());
}

TEST_F(GrpcOpenedCallTest, WithoutAConnectionThereIsNone) {
  target_ = "unix:/nowhere/attnd";
  EXPECT_EQ(Open(), nullptr);
}

}  // namespace
}  // namespace attnd::client
