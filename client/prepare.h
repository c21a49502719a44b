#ifndef ATTND_CLIENT_PREPARE_H_
#define ATTND_CLIENT_PREPARE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "attnd/client.h"
#include "attnd/region.h"
#include "client/call.h"
#include "client/region_table.h"
#include "client/transport.h"

namespace attnd::client {

// What a call found out about its server.
struct Lesson {
  bool lacks_exchange = false;
  bool lacks_regions = false;
  // Regions that it does not know, and what it said.
  std::vector<std::shared_ptr<Region>> unknown;
  std::string refusal;
};

// What decides, beside the call itself, how a call travels.
struct Route {
  int64_t max_message_bytes = 0;
  int connections = 1;
  bool lacks_exchange = false;  // the server, as far as the client knows
  std::shared_ptr<const RegionMap> regions;  // null: none
  // Why those of host memory are not to be tried; empty: they are.
  std::string region_refusal;
  // Transport::Open with the call's deadline, for whoever waits for the call;
  // may be null.
  std::function<std::unique_ptr<OpenedCall>(const std::string& method,
                                            int64_t bytes)>
      open;
  // Told once the call has been answered; may be null.
  std::function<void(const Lesson&)> learn;
};

// From so many bytes of inputs and outputs on, those not counted that go by
// reference, an Exchange is faster than one
// message each way: there the server receives, and the client copies, while the
// rest is still on its way.
inline constexpr int64_t kStreamFromBytes = int64_t{8} << 20;
// A stream more is worth its setup for so many bytes. Two on each connection
// keep it busy: gRPC opens a stream's window by a mebibyte at a time, and while
// one waits for that the other sends.
inline constexpr int64_t kBytesPerStream = int64_t{8} << 20;
inline constexpr int kStreamsPerConnection = 2;
inline constexpr int kMaxStreams = 8;

// Fills in what `spec` sends, and how it reads the response, into the call's
// memory and `report`, which must outlive it. Errors as EncodeForward's and
// Place's.
absl::Status PrepareForward(const ForwardCall& call, const CallOptions& options,
                            const Route& route, Report& report, CallSpec& spec);
absl::Status PrepareBackward(const BackwardCall& call,
                             const CallOptions& options, const Route& route,
                             Report& report, CallSpec& spec);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_PREPARE_H_
