#include "server/http2/inspector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace attnd::server::http2 {
namespace {

std::string Number(uint64_t value, int bytes) {
  std::string text;
  for (int at = bytes - 1; at >= 0; --at) {
    text.push_back(static_cast<char>(value >> (8 * at)));
  }
  return text;
}

std::string FrameOf(uint8_t type, uint8_t flags, uint32_t stream,
                    absl::string_view payload = "") {
  return absl::StrCat(Number(payload.size(), 3), Number(type, 1),
                      Number(flags, 1), Number(stream, 4), payload);
}

// ":method: POST", an entry of the static table.
constexpr absl::string_view kBlock = "\x83";

std::string Request(uint32_t stream, uint8_t flags = kEndHeaders) {
  return FrameOf(kHeaders, flags, stream, kBlock);
}
std::string Reset(uint32_t stream) {
  return FrameOf(kRstStream, 0, stream, Number(8, 4));
}
std::string Literal(const std::string& name, const std::string& value) {
  EXPECT_LT(name.size(), 127);
  EXPECT_LT(value.size(), 127);
  return absl::StrCat(Number(0, 1), Number(name.size(), 1), name,
                      Number(value.size(), 1), value);
}

class InspectorTest : public ::testing::Test {
 protected:
  // Of the peer; the code of the violation, or kNoError.
  ErrorCode Receive(absl::string_view bytes) {
    const auto violation = inspector_->Received(
        Bytes(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()),
        now_);
    if (!violation.has_value()) return ErrorCode::kNoError;
    EXPECT_FALSE(violation->what.empty());
    return violation->code;
  }
  void Send(absl::string_view bytes) {
    inspector_->Sent(
        Bytes(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()),
        now_);
  }
  // Both ends' SETTINGS, acknowledged.
  void Greet() {
    Send(FrameOf(kSettings, 0, 0));
    ASSERT_EQ(Receive(absl::StrCat(kPreface, FrameOf(kSettings, 0, 0),
                                   FrameOf(kSettings, kAck, 0))),
              ErrorCode::kNoError);
  }
  // How many of them it takes until the connection ends, at one time.
  int Flood(const std::function<std::string(uint32_t i)>& frames) {
    for (int i = 0; i < 100'000; ++i) {
      const ErrorCode code = Receive(frames(static_cast<uint32_t>(i)));
      if (code == ErrorCode::kNoError) continue;
      EXPECT_EQ(code, ErrorCode::kEnhanceYourCalm);
      return i + 1;
    }
    return -1;
  }

  absl::Time now_ = absl::UnixEpoch();
  std::optional<Inspector> inspector_{InspectorOptions()};
};

TEST_F(InspectorTest, LetsAnOrdinaryCallPass) {
  Greet();
  EXPECT_EQ(Receive(Request(1)), ErrorCode::kNoError);
  EXPECT_EQ(Receive(FrameOf(kData, kEndStream, 1, std::string(70'000, 'x'))),
            ErrorCode::kNoError);
  Send(FrameOf(kHeaders, kEndHeaders, 1, kBlock));
  Send(FrameOf(kData, 0, 1, "answer"));
  Send(FrameOf(kHeaders, kEndHeaders | kEndStream, 1, kBlock));
  EXPECT_EQ(Receive(Request(3)), ErrorCode::kNoError);
}

// However the network cuts what a client sends.
TEST_F(InspectorTest, ReadsByteByByte) {
  Send(FrameOf(kSettings, 0, 0));
  const std::string all = absl::StrCat(
      kPreface, FrameOf(kSettings, 0, 0, Number(0x000400010000, 6)),
      FrameOf(kSettings, kAck, 0), Request(1), FrameOf(kData, 0, 1, "hello"),
      FrameOf(kPing, 0, 0, "12345678"), Request(1, kEndHeaders | kEndStream));
  for (const char byte : all) {
    ASSERT_EQ(Receive({&byte, 1}), ErrorCode::kNoError);
  }
  EXPECT_EQ(inspector_->received_frames(), 6);
  EXPECT_EQ(inspector_->received_bytes(), all.size());
  EXPECT_EQ(inspector_->last_stream(), 1);
  EXPECT_EQ(Receive(FrameOf(kData, 0, 1)), ErrorCode::kStreamClosed);
}

TEST_F(InspectorTest, EndsWhoDoesNotSpeakHttp2) {
  EXPECT_EQ(Receive("GET / HTTP/1.1\r\n\r\n"), ErrorCode::kProtocolError);
  EXPECT_EQ(Receive(kPreface), ErrorCode::kProtocolError);  // for good
}

TEST_F(InspectorTest, WantsSettingsFirst) {
  EXPECT_EQ(Receive(kPreface), ErrorCode::kNoError);
  EXPECT_EQ(Receive(FrameOf(kPing, 0, 0, "12345678")),
            ErrorCode::kProtocolError);
}

TEST_F(InspectorTest, AnAcknowledgementIsNoSettings) {
  EXPECT_EQ(Receive(absl::StrCat(kPreface, FrameOf(kSettings, kAck, 0))),
            ErrorCode::kProtocolError);
}

struct Broken {
  std::string frames;
  ErrorCode code;
};

TEST_F(InspectorTest, EndsWhatBreaksTheRules) {
  const std::string open = Request(1);
  const Broken cases[] = {
      {FrameOf(kData, 0, 0), ErrorCode::kProtocolError},
      {FrameOf(kData, 0, 1), ErrorCode::kProtocolError},  // idle
      {open + FrameOf(kData, kPadded, 1), ErrorCode::kFrameSizeError},
      {FrameOf(kHeaders, kEndHeaders, 0, kBlock), ErrorCode::kProtocolError},
      {FrameOf(kHeaders, kEndHeaders, 2, kBlock), ErrorCode::kProtocolError},
      {FrameOf(kPriority, 0, 1, "1234"), ErrorCode::kFrameSizeError},
      {FrameOf(kPriority, 0, 0, "12345"), ErrorCode::kProtocolError},
      {FrameOf(kRstStream, 0, 2, "1234"), ErrorCode::kProtocolError},
      {open + FrameOf(kRstStream, 0, 1, "12345"), ErrorCode::kFrameSizeError},
      {FrameOf(kSettings, 0, 1), ErrorCode::kProtocolError},
      {FrameOf(kSettings, 0, 0, "12345"), ErrorCode::kFrameSizeError},
      {FrameOf(kSettings, kAck, 0, "123456"), ErrorCode::kFrameSizeError},
      {FrameOf(kSettings, 0, 0, Number(0x000200000002, 6)),
       ErrorCode::kProtocolError},
      {FrameOf(kSettings, 0, 0, Number(0x000480000000, 6)),
       ErrorCode::kFlowControlError},
      {FrameOf(kSettings, 0, 0, Number(0x000500003fff, 6)),
       ErrorCode::kProtocolError},
      {FrameOf(kSettings, 0, 0, Number(0x000501000000, 6)),
       ErrorCode::kProtocolError},
      {FrameOf(kPushPromise, kEndHeaders, 1, "1234"),
       ErrorCode::kProtocolError},
      {FrameOf(kPing, 0, 0, "1234567"), ErrorCode::kFrameSizeError},
      {FrameOf(kPing, 0, 1, "12345678"), ErrorCode::kProtocolError},
      {FrameOf(kGoAway, 0, 0, "1234567"), ErrorCode::kFrameSizeError},
      {FrameOf(kGoAway, 0, 1, "12345678"), ErrorCode::kProtocolError},
      {FrameOf(kWindowUpdate, 0, 0, "123"), ErrorCode::kFrameSizeError},
      {FrameOf(kWindowUpdate, 0, 0, Number(0, 4)), ErrorCode::kProtocolError},
      {FrameOf(kWindowUpdate, 0, 2, Number(1, 4)), ErrorCode::kProtocolError},
      {FrameOf(kContinuation, kEndHeaders, 1, kBlock),
       ErrorCode::kProtocolError},
      {Request(1, 0) + FrameOf(kPing, 0, 0, "12345678"),
       ErrorCode::kProtocolError},
      {Request(1, 0) + FrameOf(kContinuation, kEndHeaders, 3, kBlock),
       ErrorCode::kProtocolError},
      {open + Request(1), ErrorCode::kProtocolError},  // no trailers
      {Request(1, kEndHeaders | kEndStream) + Request(1),
       ErrorCode::kStreamClosed},
      {FrameOf(kHeaders, kEndHeaders | kPadded, 1, "\x05\x83"),
       ErrorCode::kProtocolError},
      {FrameOf(kHeaders, kEndHeaders | kPadded, 1), ErrorCode::kFrameSizeError},
      {FrameOf(kHeaders, kEndHeaders | kHasPriority, 1, "1234"),
       ErrorCode::kFrameSizeError},
      {FrameOf(kHeaders, kEndHeaders, 1, "\xff"), ErrorCode::kCompressionError},
      {FrameOf(0xff, 0, 0, std::string((2 << 20) + 1, 'x')),
       ErrorCode::kFrameSizeError},
  };
  for (size_t i = 0; i < std::size(cases); ++i) {
    inspector_.emplace(InspectorOptions());
    Greet();
    EXPECT_EQ(Receive(cases[i].frames), cases[i].code) << "case " << i;
  }
}

TEST_F(InspectorTest, IgnoresWhatItDoesNotKnow) {
  Greet();
  EXPECT_EQ(Receive(FrameOf(0x2a, 0xff, 7, "anything")), ErrorCode::kNoError);
  EXPECT_EQ(Receive(FrameOf(kSettings, 0, 0, Number(0x00ffffffffff, 6))),
            ErrorCode::kNoError);
}

TEST_F(InspectorTest, TakesPaddingAndPriorityOffHeaders) {
  Greet();
  EXPECT_EQ(Receive(FrameOf(kHeaders, kEndHeaders | kPadded | kHasPriority, 1,
                            absl::StrCat("\x02", "12345", kBlock, "\xff\xff"))),
            ErrorCode::kNoError);
}

TEST_F(InspectorTest, EndsHeadersWithoutEnd) {
  Greet();
  ASSERT_EQ(Receive(Request(1, 0)), ErrorCode::kNoError);
  std::string more;
  while (more.size() < 2000) more += Literal("x-more", std::string(100, 'v'));
  EXPECT_LE(Flood([&](uint32_t) { return FrameOf(kContinuation, 0, 1, more); }),
            50);
}

TEST_F(InspectorTest, EndsHeadersOfSmallFrames) {
  for (const char* part : {"", "\x82", "\x82\x82\x82\x82"}) {
    inspector_.emplace(InspectorOptions());
    Greet();
    ASSERT_EQ(Receive(Request(1, 0)), ErrorCode::kNoError);
    EXPECT_LE(
        Flood([&](uint32_t) { return FrameOf(kContinuation, 0, 1, part); }),
        500);
  }
}

// One after another: what they take together counts.
TEST_F(InspectorTest, EndsManyHeadersOfSmallFrames) {
  Greet();
  EXPECT_LE(Flood([](uint32_t i) {
              const uint32_t stream = 2 * i + 1;
              return Request(stream, 0) + FrameOf(kContinuation, 0, stream) +
                     FrameOf(kContinuation, kEndHeaders, stream);
            }),
            500);
}

TEST_F(InspectorTest, LetsHeadersComeByteByByte) {
  Greet();
  const std::string block = Literal("x-name", std::string(100, 'v'));
  ASSERT_EQ(Receive(Request(1, 0)), ErrorCode::kNoError);
  for (const char byte : block) {
    ASSERT_EQ(Receive(FrameOf(kContinuation, 0, 1, {&byte, 1})),
              ErrorCode::kNoError);
  }
  EXPECT_EQ(Receive(FrameOf(kContinuation, kEndHeaders, 1)),
            ErrorCode::kNoError);
}

// As of a client whose metadata are a little more than a frame, always.
TEST_F(InspectorTest, LetsTheLastFrameOfHeadersBeSmall) {
  Greet();
  for (uint32_t stream = 1; stream < 4000; stream += 2) {
    ASSERT_EQ(Receive(Request(stream, kEndStream) +
                      FrameOf(kContinuation, kEndHeaders, stream, kBlock)),
              ErrorCode::kNoError);
    Send(FrameOf(kHeaders, kEndHeaders | kEndStream, stream, kBlock));
  }
}

// gRPC would wait for the string, and keep what it has of it.
TEST_F(InspectorTest, EndsAStringOfAGigabyte) {
  Greet();
  ASSERT_EQ(Receive(FrameOf(kHeaders, 0, 1,
                            absl::StrCat(Number(0, 1), "\x01x",
                                         "\x7f\x81\xff\xff\xff\x03"))),
            ErrorCode::kNoError);
  const std::string some(16 << 10, 'x');
  EXPECT_LE(Flood([&](uint32_t) { return FrameOf(kContinuation, 0, 1, some); }),
            8);
}

// Frames that gRPC would count each by itself.
TEST_F(InspectorTest, CountsHeadersOfSeveralFramesTogether) {
  Greet();
  std::string part;
  while (part.size() < 9000) {
    part += Literal("x-part", std::string(100, 'v'));
  }
  ASSERT_EQ(Receive(FrameOf(kHeaders, 0, 1, part)), ErrorCode::kNoError);
  EXPECT_EQ(Receive(FrameOf(kContinuation, kEndHeaders, 1, part)),
            ErrorCode::kEnhanceYourCalm);
}

TEST_F(InspectorTest, LeavesHeadersThatAreALittleTooLargeToGrpc) {
  Greet();
  std::string block;
  while (block.size() < 20'000) {
    block += Literal("x-part", std::string(100, 'v'));
  }
  EXPECT_EQ(Receive(FrameOf(kHeaders, kEndHeaders, 1, block)),
            ErrorCode::kNoError);
}

// A value of some kilobytes, named over and over.
TEST_F(InspectorTest, EndsFewBytesThatStandForMany) {
  Greet();
  std::string block =
      absl::StrCat("\x40\x01z\x7f\xb9\x16", std::string(3000, 'x'));
  ASSERT_EQ(Receive(FrameOf(kHeaders, kEndHeaders, 1, block)),
            ErrorCode::kNoError);
  EXPECT_EQ(
      Receive(FrameOf(kHeaders, kEndHeaders, 3, std::string(100, '\xbe'))),
      ErrorCode::kEnhanceYourCalm);
}

TEST_F(InspectorTest, EndsFloods) {
  const std::function<std::string(uint32_t)> floods[] = {
      [](uint32_t i) { return Request(2 * i + 1) + Reset(2 * i + 1); },
      [](uint32_t) { return FrameOf(kSettings, 0, 0); },
      [](uint32_t) { return FrameOf(kSettings, kAck, 0); },
      [](uint32_t) { return FrameOf(kPing, 0, 0, "12345678"); },
      [](uint32_t) { return FrameOf(kPing, kAck, 0, "12345678"); },
      [](uint32_t) { return FrameOf(kWindowUpdate, 0, 0, Number(1, 4)); },
      [](uint32_t i) {
        return (i == 0 ? Request(1) : "") + FrameOf(kData, 0, 1);
      },
      [](uint32_t) { return FrameOf(kPriority, 0, 1, "12345"); },
      [](uint32_t) { return FrameOf(0x2a, 0, 1); },
      [](uint32_t) { return FrameOf(kGoAway, 0, 0, Number(0, 8)); },
      // Of a stream that has ended, and of those that were never opened.
      [](uint32_t i) { return (i == 0 ? Request(1) : "") + Reset(1); },
      [](uint32_t i) { return Reset(2 * i + 1); },
  };
  for (size_t i = 0; i < std::size(floods); ++i) {
    inspector_.emplace(InspectorOptions());
    Greet();
    const int frames = Flood(floods[i]);
    EXPECT_GT(frames, 0) << "flood " << i;
    EXPECT_LT(inspector_->received_frames(), 1000) << "flood " << i;
    EXPECT_LT(inspector_->received_bytes(), 1 << 20) << "flood " << i;
  }
}

// The other end of a flood: the server has to reset what the peer broke.
TEST_F(InspectorTest, EndsFloodsThatHaveTheServerReset) {
  Greet();
  EXPECT_LT(Flood([this](uint32_t i) {
              if (i > 0) Send(Reset(2 * i - 1));
              return Request(2 * i + 1);
            }),
            1000);
}

TEST_F(InspectorTest, LetsWhoIsSlowDoAllOfIt) {
  Greet();
  uint32_t stream = 1;
  for (int second = 0; second < 100; ++second) {
    now_ += absl::Seconds(1);
    for (int i = 0; i < 10; ++i) {
      ASSERT_EQ(Receive(absl::StrCat(Request(stream), Reset(stream),
                                     FrameOf(kSettings, 0, 0),
                                     FrameOf(kPing, 0, 0, "12345678"),
                                     FrameOf(kWindowUpdate, 0, 0, Number(1, 4)),
                                     FrameOf(kPriority, 0, 1, "12345"))),
                ErrorCode::kNoError);
      stream += 2;
    }
  }
}

// As gRPC's clients do with a call that is cancelled before its headers left.
TEST_F(InspectorTest, LetsAStreamBeResetThatWasNeverOpened) {
  Greet();
  EXPECT_EQ(Receive(Reset(1)), ErrorCode::kNoError);
  EXPECT_EQ(Receive(Request(3)), ErrorCode::kNoError);
  EXPECT_EQ(Receive(FrameOf(kData, 0, 5)), ErrorCode::kProtocolError);
}

// A client may give up what was not answered in time, however much that is.
TEST_F(InspectorTest, LetsOldStreamsBeReset) {
  Greet();
  uint32_t stream = 1;
  for (int round = 0; round < 5; ++round) {
    const uint32_t first = stream;
    for (int i = 0; i < 1000; ++i, stream += 2) {
      ASSERT_EQ(Receive(Request(stream)), ErrorCode::kNoError);
    }
    now_ += absl::Seconds(2);
    for (uint32_t old = first; old < stream; old += 2) {
      ASSERT_EQ(Receive(Reset(old)), ErrorCode::kNoError);
    }
  }
}

// Their deadlines passed while the client sent others, so they are given up as
// soon as they come.
TEST_F(InspectorTest, LetsCallsBeResetThatBroughtMuch) {
  const std::string frame(16 << 10, 'x');
  Greet();
  for (uint32_t stream = 1; stream < 20'000; stream += 2) {
    ASSERT_EQ(Receive(Request(stream)), ErrorCode::kNoError);
    for (int i = 0; i < 4; ++i) {
      ASSERT_EQ(Receive(FrameOf(kData, 0, stream, frame)), ErrorCode::kNoError);
    }
    ASSERT_EQ(Receive(Reset(stream)), ErrorCode::kNoError);
  }
}

// Clients that measure the link ping for each answer, and all open windows for
// what they receive.
TEST_F(InspectorTest, LetsPingsAndWindowsBeEarned) {
  Greet();
  for (uint32_t i = 0; i < 10'000; ++i) {
    const uint32_t stream = 2 * i + 1;
    Send(FrameOf(kHeaders, kEndHeaders, stream, kBlock));
    Send(FrameOf(kData, 0, stream, "answer"));
    ASSERT_EQ(Receive(absl::StrCat(FrameOf(kPing, 0, 0, "12345678"),
                                   FrameOf(kWindowUpdate, 0, 0, Number(1, 4)),
                                   FrameOf(kWindowUpdate, 0, 0, Number(1, 4)))),
              ErrorCode::kNoError);
  }
}

// However many calls a client begins, it opens the window of each, and where a
// write holds no more than one call the connection's with it.
TEST_F(InspectorTest, LetsEachCallsWindowBeOpened) {
  Greet();
  const std::string connections =
      FrameOf(kWindowUpdate, 0, 0, Number(8 << 20, 4));
  for (uint32_t stream = 1; stream < 20'000; stream += 2) {
    const std::string calls =
        FrameOf(kWindowUpdate, 0, stream, Number(8 << 20, 4));
    ASSERT_EQ(Receive(absl::StrCat(Request(stream), calls, calls, connections,
                                   FrameOf(kData, kEndStream, stream, "call"),
                                   connections)),
              ErrorCode::kNoError);
  }
}

// A client that had no processor for a while opens windows late, by as little
// as it reads at once.
TEST_F(InspectorTest, LetsWindowsBeOpenedLate) {
  constexpr int kUnread = 16 << 20, kFrame = 16 << 10, kRead = 4 << 10;
  Greet();
  ASSERT_EQ(Receive(Request(1)), ErrorCode::kNoError);
  for (int sent = 0; sent < kUnread; sent += kFrame) {
    Send(FrameOf(kData, 0, 1, std::string(kFrame, 'x')));
  }
  for (int read = 0; read < kUnread; read += kRead) {
    ASSERT_EQ(Receive(FrameOf(kWindowUpdate, 0, 0, Number(kRead, 4))),
              ErrorCode::kNoError);
  }
}

// Both ends end a call whose deadline has passed, and the client cannot know.
TEST_F(InspectorTest, LetsCallsEndByTheThousandAtBothEnds) {
  Greet();
  for (uint32_t stream = 1; stream < 20'000; stream += 2) {
    ASSERT_EQ(Receive(Request(stream)), ErrorCode::kNoError);
    Send(FrameOf(kHeaders, kEndHeaders | kEndStream, stream, kBlock));
    ASSERT_EQ(Receive(Reset(stream)), ErrorCode::kNoError);
  }
}

TEST_F(InspectorTest, BoundsStreamsBeforeTheLimitIsAcknowledged) {
  Send(FrameOf(kSettings, 0, 0));
  ASSERT_EQ(Receive(absl::StrCat(kPreface, FrameOf(kSettings, 0, 0))),
            ErrorCode::kNoError);
  EXPECT_EQ(Flood([](uint32_t i) { return Request(2 * i + 1); }), 501);
}

TEST_F(InspectorTest, StreamsThatEndedLeaveRoom) {
  Send(FrameOf(kSettings, 0, 0));
  ASSERT_EQ(Receive(absl::StrCat(kPreface, FrameOf(kSettings, 0, 0))),
            ErrorCode::kNoError);
  for (uint32_t stream = 1; stream < 20'000; stream += 2) {
    ASSERT_EQ(Receive(Request(stream)), ErrorCode::kNoError);
    Send(FrameOf(kHeaders, kEndHeaders | kEndStream, stream, kBlock));
  }
}

TEST_F(InspectorTest, WantsItsSettingsAcknowledged) {
  Send(FrameOf(kSettings, 0, 0));
  ASSERT_EQ(Receive(absl::StrCat(kPreface, FrameOf(kSettings, 0, 0))),
            ErrorCode::kNoError);
  now_ += absl::Seconds(9);
  EXPECT_EQ(Receive(Request(1)), ErrorCode::kNoError);
  now_ += absl::Seconds(2);
  EXPECT_EQ(Receive(Request(3)), ErrorCode::kSettingsTimeout);
}

// By another thread, which has not come to say that it sent them.
TEST_F(InspectorTest, AnAcknowledgementMayBeSeenBeforeWhatItIsFor) {
  ASSERT_EQ(Receive(absl::StrCat(kPreface, FrameOf(kSettings, 0, 0),
                                 FrameOf(kSettings, kAck, 0))),
            ErrorCode::kNoError);
  Send(FrameOf(kSettings, 0, 0));
  now_ += absl::Hours(1);
  EXPECT_EQ(Receive(Request(1)), ErrorCode::kNoError);
}

TEST_F(InspectorTest, KnowsWhenAFrameMayBeSent) {
  EXPECT_TRUE(inspector_->is_between_sent_frames());
  const std::string frame = FrameOf(kData, 0, 1, "0123456789");
  Send(frame.substr(0, 5));
  EXPECT_FALSE(inspector_->is_between_sent_frames());
  Send(frame.substr(5, 10));
  EXPECT_FALSE(inspector_->is_between_sent_frames());
  Send(frame.substr(15));
  EXPECT_TRUE(inspector_->is_between_sent_frames());
}

}  // namespace
}  // namespace attnd::server::http2
