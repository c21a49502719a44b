#ifndef ATTND_CLIENT_STREAM_QUEUE_H_
#define ATTND_CLIENT_STREAM_QUEUE_H_

#include <thread>

#include "grpcpp/completion_queue.h"

namespace attnd::client {

// A completion queue of gRPC's, and the one thread that waits there and handles
// each event itself. The threads that gRPC has for its callbacks hand an event
// from one to another: that costs more than most of what is done about it.
class StreamQueue {
 public:
  // What an operation is started with.
  class Tag {
   public:
    // On the queue's thread, once: the operation is over. `ok` says whether it
    // has done what it was to do.
    virtual void OnDone(bool ok) = 0;

   protected:
    ~Tag() = default;
  };

  StreamQueue();
  // Waits until all operations are over. None may be started any more, and not
  // on the queue's own thread.
  ~StreamQueue();
  StreamQueue(const StreamQueue&) = delete;
  StreamQueue& operator=(const StreamQueue&) = delete;

  // For operations whose tag is a Tag*.
  grpc::CompletionQueue* get() { return &queue_; }

 private:
  void Run();

  grpc::CompletionQueue queue_;
  std::thread thread_;
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_STREAM_QUEUE_H_
