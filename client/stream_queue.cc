#include "client/stream_queue.h"

namespace attnd::client {

StreamQueue::StreamQueue() : thread_([this] { Run(); }) {}

StreamQueue::~StreamQueue() {
  queue_.Shutdown();
  thread_.join();
}

void StreamQueue::Run() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) static_cast<Tag*>(tag)->OnDone(ok);
}

}  // namespace attnd::client
