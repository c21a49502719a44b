// SETTINGS, PING, GOAWAY and the windows of flow control.

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/integration/malformed/case.h"
#include "tests/integration/malformed/requests.h"
#include "tests/integration/malformed/tables.h"

namespace attnd::testing {
namespace {

// RFC 9113, section 6.5.2.
enum SettingId : uint16_t {
  kTableSize = 1,
  kEnablePush = 2,
  kInitialWindowSize = 4,
  kMaxFrameSize = 5,
};
constexpr uint32_t kMaxWindow = 0x7fffffff;

std::string Settings(const std::string& payload) {
  return Frame(kSettings, 0, 0, payload);
}
std::string Window(uint32_t stream, uint32_t more) {
  return Frame(kWindowUpdate, 0, stream, BigEndian(more, 4));
}

MalformedCase BadSetting(std::string name, std::string bytes, ErrorCode code) {
  return ConnectionCase(std::move(name), "6.5.2", std::move(bytes), code);
}

// A case that may end its stream alone, with the same code.
MalformedCase OrStream(MalformedCase c) {
  c.expected.push_back(StreamError(ErrorCode{c.expected[0].code}));
  return c;
}

void AddSettings(MalformedCases& cases) {
  const struct {
    const char* name;
    SettingId id;
    uint32_t value;
    ErrorCode code;
  } out_of_range[] = {
      {"ENABLE_PUSH", kEnablePush, 2, ErrorCode::kProtocol},
      {"ENABLE_PUSH", kEnablePush, 0xffffffff, ErrorCode::kProtocol},
      {"INITIAL_WINDOW_SIZE", kInitialWindowSize, 0x80000000,
       ErrorCode::kFlowControl},
      {"INITIAL_WINDOW_SIZE", kInitialWindowSize, 0xffffffff,
       ErrorCode::kFlowControl},
      {"MAX_FRAME_SIZE", kMaxFrameSize, 0, ErrorCode::kProtocol},
      {"MAX_FRAME_SIZE", kMaxFrameSize, 16383, ErrorCode::kProtocol},
      {"MAX_FRAME_SIZE", kMaxFrameSize, 1 << 24, ErrorCode::kProtocol},
      {"MAX_FRAME_SIZE", kMaxFrameSize, 0xffffffff, ErrorCode::kProtocol},
  };
  for (const auto& [name, id, value, code] : out_of_range) {
    cases.push_back(BadSetting(absl::StrCat("SETTINGS_", name, " of ", value),
                               Settings(Setting(id, value)), code));
  }
  cases.push_back(
      BadSetting("a bad setting between good ones",
                 Settings(Setting(kEnablePush, 0) + Setting(kMaxFrameSize, 1) +
                          Setting(kMaxFrameSize, 16384)),
                 ErrorCode::kProtocol));
  cases.push_back(
      BadSetting("a bad first SETTINGS",
                 kPreface + Settings(Setting(kInitialWindowSize, 0xffffffff)),
                 ErrorCode::kFlowControl));
  cases.back().raw = true;
}

void AddWindows(MalformedCases& cases) {
  constexpr char kNoOverflow[] =
      "gRPC counts windows in 64 bits, without a limit";
  const MalformedCase added[] = {
      ConnectionCase("WINDOW_UPDATE by 0", "6.9", Window(0, 0),
                     ErrorCode::kProtocol),
      ConnectionCase("WINDOW_UPDATE by 0 and the reserved bit", "6.9",
                     Window(0, 0x80000000), ErrorCode::kProtocol),
      OrStream(ConnectionCase("WINDOW_UPDATE of a stream by 0", "6.9",
                              WatchCall() + Window(1, 0),
                              ErrorCode::kProtocol)),
      But(ConnectionCase("the connection's window beyond 2^31 - 1", "6.9.1",
                         Window(0, kMaxWindow), ErrorCode::kFlowControl),
          Ignored(), kNoOverflow),
      But(ConnectionCase("the connection's window beyond 2^31 - 1 in two steps",
                         "6.9.1",
                         Window(0, kMaxWindow - 65535) + Window(0, 65536),
                         ErrorCode::kFlowControl),
          Ignored(), kNoOverflow),
      But(OrStream(ConnectionCase("a stream's window beyond 2^31 - 1", "6.9.1",
                                  WatchCall() + Window(1, kMaxWindow),
                                  ErrorCode::kFlowControl)),
          Ignored(), kNoOverflow),
      But(ConnectionCase("a stream's window beyond 2^31 - 1 by SETTINGS",
                         "6.9.2",
                         WatchCall() + Window(1, kMaxWindow - 65535) +
                             Settings(Setting(kInitialWindowSize, kMaxWindow)),
                         ErrorCode::kFlowControl),
          Ignored(), kNoOverflow),
      // 1 MiB in one frame, before anyone was told of so large a window.
      But(OrStream(ConnectionCase(
              "DATA beyond the window", "6.9.1",
              OpenStream() + Frame(kData, 0, 1, std::string(1 << 20, '\0')),
              ErrorCode::kFlowControl)),
          StreamError(ErrorCode::kProtocol), kDataIsProtocol),
  };
  cases.insert(cases.end(), std::begin(added), std::end(added));
}

// Neither is an error; a server may go on or end.
void AddGoAway(MalformedCases& cases) {
  const std::pair<const char*, std::string> added[] = {
      {"GOAWAY with an error", BigEndian(0, 4) + BigEndian(1, 4)},
      {"GOAWAY with an unknown error", BigEndian(0, 4) + BigEndian(~0u, 4)},
      {"GOAWAY that has seen streams that were not",
       BigEndian(kMaxWindow, 4) + BigEndian(0, 4)},
      {"GOAWAY with a text",
       BigEndian(0, 4) + BigEndian(2, 4) + std::string(1000, '\xff')}};
  for (const auto& [name, payload] : added) {
    cases.push_back({.name = name,
                     .section = "6.8",
                     .bytes = Frame(kGoAway, 0, 0, payload),
                     .expected = {Ignored(), Closed(),
                                  ConnectionError(ErrorCode::kProtocol)}});
  }
  // What a client has to say at length, the server need not keep.
  cases.push_back(ConnectionCase(
      "GOAWAY with a long text", "10.5",
      Frame(kGoAway, 0, 0,
            BigEndian(0, 4) + BigEndian(2, 4) + std::string(10000, '\xff')),
      ErrorCode::kEnhanceYourCalm));
  const std::string goaway = Frame(kGoAway, 0, 0, std::string(8, '\0'));
  cases.push_back({.name = "GOAWAY twice, the second for more streams",
                   .section = "6.8",
                   .bytes = goaway + Frame(kGoAway, 0, 0,
                                           BigEndian(5, 4) + BigEndian(0, 4)),
                   .expected = {Ignored(), Closed(),
                                ConnectionError(ErrorCode::kProtocol)}});
}

}  // namespace

MalformedCases ConnectionFrameCases() {
  MalformedCases cases;
  AddSettings(cases);
  AddWindows(cases);
  AddGoAway(cases);
  return cases;
}

}  // namespace attnd::testing
