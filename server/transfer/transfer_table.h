#ifndef ATTND_SERVER_TRANSFER_TRANSFER_TABLE_H_
#define ATTND_SERVER_TRANSFER_TRANSFER_TABLE_H_

// Which transfers there are. No gRPC in here.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/transfer/transfer.h"

namespace attnd::server {

// What a header asks for.
struct TransferSpec {
  WorkPtr work;  // its request, client and deadline, and inline inputs
  Streamed streamed;
  int64_t streams = 0;      // 0: one
  int64_t chunk_bytes = 0;  // 0: the server's choice
};

// Thread-safe. Transfers may outlive it.
class TransferTable {
 public:
  // What a chunk has unless a client wishes otherwise: a larger one keeps what
  // comes last waiting longer for its copy, a smaller one costs more.
  static constexpr int64_t kPreferredChunkBytes = int64_t{1} << 20;
  // Larger tensors are cut into larger chunks, as what is missing is told chunk
  // by chunk.
  static constexpr int64_t kMostChunks = 1 << 15;
  // How often memory is looked at while there are transfers.
  static constexpr absl::Duration kLookAtMemory = absl::Milliseconds(3);
  // What transfers may be suspected of, beside what requests may take.
  static constexpr int64_t kExcess = int64_t{16} << 20;

  // `excess_memory` may be null: see front/excess_memory.h.
  TransferTable(const TransferParts& parts, int max_streams,
                std::function<int64_t()> excess_memory);
  ~TransferTable();

  // Reserves all that `spec` will need. `take_room` asks for so many bytes for
  // messages that are received, and says whether there are; `room` is what
  // holds them. The work's `done` is the transfer's to fill. Errors: those of
  // Scheduler::Admit and PlaceInputs, and
  //   INVALID_ARGUMENT    streams or chunk_bytes make no sense
  //   RESOURCE_EXHAUSTED  no room for messages, with RetryInfo
  absl::StatusOr<std::shared_ptr<Transfer>> Open(
      const TransferSpec& spec,
      absl::FunctionRef<bool(int64_t bytes)> take_room,
      std::shared_ptr<void> room);

  // Whether what Open returned says that room for messages is missing, which
  // others soon give back.
  static bool LacksRoom(const absl::Status& status);

  // Null: there is none.
  std::shared_ptr<Transfer> Find(const std::string& token);

  // Ends all that are left.
  void EndAll(const absl::Status& status);
  int64_t size() const;

 private:
  struct State;
  std::vector<std::shared_ptr<Transfer>> All() const;
  void LookAtMemory();

  const TransferParts parts_;
  const int max_streams_;
  const std::function<int64_t()> excess_memory_;
  const std::shared_ptr<State> state_;  // what transfers leave by
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TRANSFER_TRANSFER_TABLE_H_
