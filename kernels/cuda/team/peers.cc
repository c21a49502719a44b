#include "kernels/cuda/team/peers.h"

#include <cuda_runtime_api.h>

#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/status.h"

namespace attnd::cuda {
namespace {

struct Answers {
  Mutex mutex;
  // By owner and reader.
  absl::flat_hash_map<std::pair<int, int>, bool> allowed ABSL_GUARDED_BY(mutex);
};

Answers& TheAnswers() {
  static auto* const answers = new Answers;
  return *answers;
}

bool Allow(int owner, int reader) {
  int can = 0;
  absl::Status status = ToStatus(cudaDeviceCanAccessPeer(&can, reader, owner),
                                 "a device's peers");
  if (!status.ok() || can == 0) return false;
  cudaMemPool_t pool = nullptr;
  status = ToStatus(cudaDeviceGetDefaultMemPool(&pool, owner), "memory pool");
  if (!status.ok()) return false;
  cudaMemAccessDesc access = {};
  access.location.type = cudaMemLocationTypeDevice;
  access.location.id = reader;
  access.flags = cudaMemAccessFlagsProtReadWrite;
  return ToStatus(cudaMemPoolSetAccess(pool, &access, 1), "memory pool").ok();
}

}  // namespace

void ShareMemory(int device) {
  const absl::StatusOr<std::vector<int>> usable = UsableDevices();
  if (!usable.ok()) return;
  Answers& answers = TheAnswers();
  const MutexLock lock(answers.mutex);
  for (int reader : *usable) {
    if (reader == device) continue;
    const auto [answer, is_new] =
        answers.allowed.try_emplace({device, reader}, false);
    if (is_new) answer->second = Allow(device, reader);
  }
}

bool CanRead(int reader, int owner) {
  if (reader == owner) return true;
  Answers& answers = TheAnswers();
  const MutexLock lock(answers.mutex);
  const auto answer = answers.allowed.find({owner, reader});
  return answer != answers.allowed.end() && answer->second;
}

}  // namespace attnd::cuda
