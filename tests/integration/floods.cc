#include "tests/integration/floods.h"

#include <sys/socket.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/integration/http2_bytes.h"
#include "tests/integration/http2_socket.h"

namespace attnd::testing {
namespace {

// Of a call that the server would serve.
std::string GoodHeaders() {
  return PackedHeaders(CallHeaders("/attn.v1.AttentionService/Forward"));
}

std::string Call(uint32_t stream) {
  return Frame(kHeaders, kEndHeaders, stream, GoodHeaders());
}

std::string Headers(size_t bytes) {
  std::string block;
  for (int i = 0; block.size() < bytes; ++i) {
    absl::StrAppend(&block,
                    PackedHeader(absl::StrCat("x-", i), std::string(200, 'v')));
  }
  return block;
}

bool IsTimeout(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

// A write is to hold some of them.
Flood OfFrames(const std::string& name, const std::string& frame,
               const std::string& first = "") {
  return {name, first, [many = Repeated(frame, 50)](uint32_t) { return many; }};
}

std::vector<Flood> MakeFloods() {
  std::vector<Flood> floods;
  floods.push_back({"endless headers", Frame(kHeaders, 0, 1, GoodHeaders()),
                    [part = Frame(kContinuation, 0, 1, Headers(9000))](
                        uint32_t) { return part; }});
  floods.push_back(OfFrames("empty CONTINUATION", Frame(kContinuation, 0, 1),
                            Frame(kHeaders, 0, 1, GoodHeaders())));
  floods.push_back(
      {"a string of a gigabyte",
       Frame(kHeaders, 0, 1,
             absl::StrCat(GoodHeaders(), std::string(1, '\0'),
                          PackedText("x-blob"), PackedInteger(1 << 30, 7))),
       [part = Frame(kContinuation, 0, 1, std::string(16 << 10, 'x'))](
           uint32_t) { return part; }});
  floods.push_back(
      {"metadata in several frames", "", [part = Headers(9000)](uint32_t i) {
         const uint32_t stream = 2 * i + 1;
         return absl::StrCat(Frame(kHeaders, 0, stream, GoodHeaders() + part),
                             Frame(kContinuation, kEndHeaders, stream, part));
       }});
  floods.push_back(
      {"entries named again and again",
       Frame(kHeaders, kEndHeaders, 1,
             absl::StrCat(GoodHeaders(), "\x40", PackedText("x-entry"),
                          PackedText(std::string(3000, 'x')))),
       [](uint32_t i) {
         return Frame(kHeaders, kEndHeaders, 2 * i + 3,
                      GoodHeaders() + std::string(10'000, '\xbe'));
       },
       /*acknowledges=*/true, /*grpc_may_end=*/true});
  floods.push_back({"streams that are reset", "", [](uint32_t i) {
                      const uint32_t stream = 2 * i + 1;
                      return Call(stream) +
                             Frame(kReset, 0, stream, BigEndian(8, 4));
                    }});
  // DATA on them breaks a rule of gRPC's, which then has to reset them.
  floods.push_back({"streams that must be reset", "",
                    [](uint32_t i) {
                      const uint32_t stream = 2 * i + 1;
                      return Call(stream) +
                             Frame(kData, kPadded, stream, "\x05short");
                    },
                    /*acknowledges=*/true, /*grpc_may_end=*/true});
  floods.push_back({"streams without end", "",
                    [](uint32_t i) { return Call(2 * i + 1); },
                    /*acknowledges=*/false});
  floods.push_back(OfFrames("DATA without any", Frame(kData, 0, 1), Call(1)));
  floods.push_back(
      OfFrames("WINDOW_UPDATE", Frame(kWindowUpdate, 0, 0, BigEndian(1, 4))));
  floods.push_back(OfFrames("WINDOW_UPDATE of a stream",
                            Frame(kWindowUpdate, 0, 1, BigEndian(1, 4)),
                            Call(1)));
  floods.push_back(OfFrames("PING", Frame(kPing, 0, 0, "12345678")));
  floods.push_back(
      OfFrames("PING's answers", Frame(kPing, kAck, 0, "12345678")));
  floods.push_back(
      OfFrames("SETTINGS", Frame(kSettings, 0, 0, Setting(4, 1 << 20))));
  floods.push_back(OfFrames("SETTINGS' answers", Frame(kSettings, kAck, 0)));
  floods.push_back(OfFrames("PRIORITY", Frame(kPriority, 0, 1, "12345")));
  floods.push_back(OfFrames("frames of no known type", Frame(0x2a, 0, 0)));
  floods.push_back(
      OfFrames("GOAWAY", Frame(kGoAway, 0, 0, std::string(8, '\0'))));
  return floods;
}

}  // namespace

const std::vector<Flood>& AllFloods() {
  static const std::vector<Flood>* const floods =
      new std::vector<Flood>(MakeFloods());
  return *floods;
}

FloodingPeer::FloodingPeer(const std::string& address, int host,
                           const TlsClientOptions* tls)
    : socket_(TryToConnect(address, host)) {
  // OpenSSL writes to a socket that the server has closed.
  std::signal(SIGPIPE, SIG_IGN);
  if (tls == nullptr || !socket_.valid()) return;
  tls_ = std::make_unique<TlsClient>(socket_.get(), *tls);
  if (!tls_->Handshake()) socket_ = Descriptor();
}

bool FloodingPeer::Send(absl::string_view bytes) {
  sent_bytes_ += static_cast<int64_t>(bytes.size());
  return tls_ != nullptr ? tls_->Send(bytes) : SendBytes(socket_.get(), bytes);
}

// Waits for the server's first word, so that it holds its peer to its SETTINGS.
void FloodingPeer::Greet(bool acknowledges) {
  Send(absl::StrCat(kPreface, Frame(kSettings, 0, 0)));
  char byte = 0;
  if (tls_ != nullptr) {
    tls_->Receive();
  } else {
    recv(socket_.get(), &byte, 1, 0);
  }
  if (acknowledges) Send(Frame(kSettings, kAck, 0));
}

bool FloodingPeer::Pour(const Flood& flood, int64_t most_bytes) {
  if (!socket_.valid()) return false;
  Greet(flood.acknowledges);
  bool goes_on = Send(flood.first);
  for (uint32_t i = 0; goes_on && sent_bytes_ < most_bytes; ++i) {
    goes_on = Send(flood.more(i));
  }
  return !goes_on;
}

bool FloodingPeer::AwaitEnd() {
  if (!socket_.valid()) return false;
  errno = 0;
  if (tls_ != nullptr) {
    while (!tls_->Receive().empty()) {
    }
    return !IsTimeout(errno) || tls_->has_ended_cleanly();
  }
  char bytes[4096];
  ssize_t got = 0;
  while ((got = recv(socket_.get(), bytes, sizeof(bytes), 0)) > 0) {
  }
  return got == 0 || !IsTimeout(errno);
}

}  // namespace attnd::testing
