#include "server/front/io_threads.h"

namespace attnd::server {
namespace {

// Whose thread this is, if any's.
thread_local const grpc::ServerCompletionQueue* own_queue = nullptr;

// Until the queue is shut down and empty.
void Run(grpc::ServerCompletionQueue& queue) {
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) static_cast<Completion*>(tag)->OnComplete(ok);
}

}  // namespace

IoThreads::Use::Use(IoThreads& threads) : threads_(threads) {
  MutexLock lock(threads_.mutex_);
  ++threads_.uses_;
}

IoThreads::Use::~Use() {
  MutexLock lock(threads_.mutex_);
  if (--threads_.uses_ == 0) threads_.unused_.NotifyAll();
}

IoThreads::IoThreads(int threads, grpc::ServerBuilder& builder) {
  for (int i = 0; i < threads; ++i) {
    queues_.push_back(builder.AddCompletionQueue());
  }
}

void IoThreads::Start() {
  for (const auto& queue : queues_) {
    threads_.emplace_back([&queue = *queue] {
      own_queue = &queue;
      Run(queue);
    });
  }
}

bool IoThreads::IsOn(const grpc::ServerCompletionQueue& queue) {
  return own_queue == &queue;
}

IoThreads::~IoThreads() {
  {
    MutexLock lock(mutex_);
    unused_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return uses_ == 0;
    });
  }
  for (const auto& queue : queues_) queue->Shutdown();
  if (threads_.empty()) {
    for (const auto& queue : queues_) Run(*queue);
  }
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace attnd::server
