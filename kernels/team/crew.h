#ifndef ATTND_KERNELS_TEAM_CREW_H_
#define ATTND_KERNELS_TEAM_CREW_H_

#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "base/mutex.h"

namespace attnd {

// Threads that do the same thing side by side, one of them the caller's. For
// one thread at a time.
class Crew {
 public:
  // std::system_error where the system has no more threads.
  explicit Crew(int size);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }
  // Calls work(i) for each i < `count` <= size(), at once, and returns when all
  // have.
  void Run(int count, absl::FunctionRef<void(int)> work);

 private:
  void Loop(int index);

  Mutex mutex_;
  Condition begun_, ended_;
  absl::FunctionRef<void(int)>* work_ ABSL_GUARDED_BY(mutex_) = nullptr;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
  int round_ ABSL_GUARDED_BY(mutex_) = 0;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace attnd

#endif  // ATTND_KERNELS_TEAM_CREW_H_
