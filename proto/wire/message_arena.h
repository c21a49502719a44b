#ifndef ATTND_PROTO_WIRE_MESSAGE_ARENA_H_
#define ATTND_PROTO_WIRE_MESSAGE_ARENA_H_

#include <cstddef>

#include "google/protobuf/arena.h"

namespace attnd::wire {

// An arena for one message that begins on the stack: room for a usual header,
// so that small ones need no malloc.
class MessageArena {
 public:
  MessageArena() : arena_(Options(block_)) {}
  template <typename Message>
  Message& New() {
    return *google::protobuf::Arena::CreateMessage<Message>(&arena_);
  }

 private:
  static constexpr size_t kArenaBytes = 4096;

  static google::protobuf::ArenaOptions Options(char* block) {
    google::protobuf::ArenaOptions options;
    options.initial_block = block;
    options.initial_block_size = kArenaBytes;
    return options;
  }

  alignas(8) char block_[kArenaBytes];
  google::protobuf::Arena arena_;
};

}  // namespace attnd::wire

#endif  // ATTND_PROTO_WIRE_MESSAGE_ARENA_H_
