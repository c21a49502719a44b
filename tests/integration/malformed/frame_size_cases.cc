// Frames whose length their type forbids, or that are too small for what their
// flags promise.

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/integration/malformed/case.h"
#include "tests/integration/malformed/requests.h"
#include "tests/integration/malformed/tables.h"

namespace attnd::testing {
namespace {

// More than any server says that it takes, and the most that a frame can say.
constexpr uint32_t kTooLarge = (1 << 22) + 1;
constexpr uint32_t kLargest = (1 << 24) - 1;

std::string Zeros(int bytes) { return std::string(bytes, '\0'); }

MalformedCase OfSize(std::string name, std::string section, std::string bytes) {
  return ConnectionCase(std::move(name), std::move(section), std::move(bytes),
                        ErrorCode::kFrameSize);
}

// A case that may end its stream alone.
MalformedCase OfStream(MalformedCase c) {
  c.expected.push_back(StreamError(ErrorCode::kFrameSize));
  return c;
}

// The head of a frame that is too large. There is no need to wait for the rest.
MalformedCase TooLarge(std::string name, uint8_t type, uint32_t stream,
                       uint32_t length = kTooLarge) {
  MalformedCase c = OfSize(absl::StrCat(name, " of ", length, " bytes"), "4.2",
                           (type == kData && stream != 0 ? OpenStream() : "") +
                               FrameHead(length, type, 0, stream));
  c.then = Then::kWait;
  return c;
}

void AddFixedLengths(MalformedCases& cases) {
  for (const int size : {1, 5, 7}) {
    cases.push_back(OfSize(absl::StrCat("SETTINGS of ", size, " bytes"), "6.5",
                           Frame(kSettings, 0, 0, Zeros(size))));
  }
  cases.push_back(OfSize("an acknowledgement with a setting", "6.5",
                         Frame(kSettings, kAck, 0, Setting(4, 65535))));
  for (const int size : {0, 7, 9}) {
    cases.push_back(OfSize(absl::StrCat("PING of ", size, " bytes"), "6.7",
                           Frame(kPing, 0, 0, Zeros(size))));
  }
  cases.push_back(OfSize("an acknowledged PING of 7 bytes", "6.7",
                         Frame(kPing, kAck, 0, Zeros(7))));
  for (const int size : {0, 7}) {
    cases.push_back(OfSize(absl::StrCat("GOAWAY of ", size, " bytes"), "4.2",
                           Frame(kGoAway, 0, 0, Zeros(size))));
  }
  for (const int size : {0, 3, 5}) {
    cases.push_back(OfSize(absl::StrCat("WINDOW_UPDATE of ", size, " bytes"),
                           "6.9", Frame(kWindowUpdate, 0, 0, Zeros(size))));
    cases.push_back(
        OfSize(absl::StrCat("WINDOW_UPDATE of ", size, " bytes on a stream"),
               "6.9", OpenStream() + Frame(kWindowUpdate, 0, 1, Zeros(size))));
    cases.push_back(OfSize(absl::StrCat("RST_STREAM of ", size, " bytes"),
                           "6.4",
                           OpenStream() + Frame(kReset, 0, 1, Zeros(size))));
  }
  for (const int size : {0, 4, 6}) {
    cases.push_back(
        OfStream(OfSize(absl::StrCat("PRIORITY of ", size, " bytes"), "6.3",
                        OpenStream() + Frame(kPriority, 0, 1, Zeros(size)))));
  }
}

// Too small for what the flags say is in them, or with more padding than that.
void AddPadding(MalformedCases& cases) {
  const std::string open = OpenStream();
  const MalformedCase added[] = {
      OfSize("padded HEADERS of no bytes", "6.2",
             Frame(kHeaders, kPadded | kEndHeaders, 1)),
      OfSize("HEADERS that end within their priority", "6.2",
             Frame(kHeaders, kHasPriority | kEndHeaders, 1, Zeros(4))),
      OfStream(OfSize("padded DATA of no bytes", "6.1",
                      open + Frame(kData, kPadded, 1))),
      But(ConnectionCase("DATA padded by all of itself", "6.1",
                         open + Frame(kData, kPadded, 1, "\4xyz"),
                         ErrorCode::kProtocol),
          StreamError(ErrorCode::kProtocol), kDataIsProtocol),
      But(ConnectionCase("DATA padded by more than itself", "6.1",
                         open + Frame(kData, kPadded, 1, "\xffxyz"),
                         ErrorCode::kProtocol),
          StreamError(ErrorCode::kProtocol), kDataIsProtocol),
      ConnectionCase("HEADERS padded by more than themselves", "6.2",
                     Frame(kHeaders, kPadded | kEndHeaders, 1, "\xffxyz"),
                     ErrorCode::kProtocol),
      ConnectionCase("HEADERS whose padding reaches into their priority", "6.2",
                     Frame(kHeaders, kPadded | kHasPriority | kEndHeaders, 1,
                           "\2" + Zeros(6)),
                     ErrorCode::kProtocol),
  };
  cases.insert(cases.end(), std::begin(added), std::end(added));
}

}  // namespace

MalformedCases FrameSizeCases() {
  MalformedCases cases = {
      TooLarge("HEADERS", kHeaders, 1),
      TooLarge("HEADERS", kHeaders, 1, kLargest),
      TooLarge("SETTINGS", kSettings, 0),
      TooLarge("PING", kPing, 0, kLargest),
      TooLarge("GOAWAY", kGoAway, 0, kLargest),
      TooLarge("RST_STREAM", kReset, 1, kLargest),
      TooLarge("WINDOW_UPDATE", kWindowUpdate, 0, kLargest),
      TooLarge("CONTINUATION", kContinuation, 1, kLargest),
      TooLarge("an unknown frame", 0x77, 0),
      TooLarge("an unknown frame", 0x77, 0, kLargest),
  };
  for (const uint32_t size : {kTooLarge, kLargest}) {
    cases.push_back(OfStream(TooLarge("DATA", kData, 1, size)));
  }
  AddFixedLengths(cases);
  AddPadding(cases);
  return cases;
}

}  // namespace attnd::testing
