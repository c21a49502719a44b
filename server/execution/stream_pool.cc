#include "server/execution/stream_pool.h"

#include <utility>

namespace attnd::server {

absl::StatusOr<std::unique_ptr<StreamPool>> StreamPool::Create(Backend& backend,
                                                               int streams) {
  auto pool = std::make_unique<StreamPool>();
  for (int i = 0; i < streams; ++i) {
    absl::StatusOr<std::unique_ptr<Stream>> stream = backend.NewStream();
    if (!stream.ok()) return stream.status();
    pool->Return(*std::move(stream));
  }
  return pool;
}

std::unique_ptr<Stream> StreamPool::Take() {
  MutexLock lock(mutex_);
  std::unique_ptr<Stream> stream = std::move(idle_.back());
  idle_.pop_back();
  return stream;
}

void StreamPool::Return(std::unique_ptr<Stream> stream) {
  MutexLock lock(mutex_);
  idle_.push_back(std::move(stream));
}

}  // namespace attnd::server
