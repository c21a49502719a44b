#ifndef ATTND_SERVER_FRONT_IO_THREADS_H_
#define ATTND_SERVER_FRONT_IO_THREADS_H_

// The threads that calls run on, and that read and write the network. Each has
// a completion queue of its own, to which gRPC gives a share of the
// connections: one thread reads from a connection's socket, takes the message
// and, of an Exchange, copies it, while it is still in the processor's cache.
// That each polls its own connections takes wire::PrepareForGrpc, which attnd
// uses. gRPC's callback threads hand every event from one to the next instead,
// which costs half as much again for a byte (tests/bench/RESULTS.md,
// "Exchange").

#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/server_builder.h"

namespace attnd::server {

// What an operation of gRPC's is called by. Told once that it is over; not
// `ok`: it did not do what it was to do.
class Completion {
 public:
  virtual void OnComplete(bool ok) = 0;

 protected:
  ~Completion() = default;
};

// Thread-safe.
class IoThreads {
 public:
  // Keeps the queues open: operations may be started while it exists.
  class Use {
   public:
    explicit Use(IoThreads& threads);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    IoThreads& threads_;
  };

  // For the server that `builder` makes.
  IoThreads(int threads, grpc::ServerBuilder& builder);
  // After that server has shut down: waits until nobody uses the queues.
  ~IoThreads();
  IoThreads(const IoThreads&) = delete;
  IoThreads& operator=(const IoThreads&) = delete;

  // Valid as long as this.
  absl::Span<const std::unique_ptr<grpc::ServerCompletionQueue>> queues()
      const {
    return queues_;
  }
  // Once the server has been built.
  void Start();
  // Whether the calling thread is the one of `queue`.
  static bool IsOn(const grpc::ServerCompletionQueue& queue);

 private:
  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues_;
  std::vector<std::thread> threads_;
  Mutex mutex_;
  Condition unused_;
  int uses_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_IO_THREADS_H_
