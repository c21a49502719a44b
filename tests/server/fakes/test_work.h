#ifndef ATTND_TESTS_SERVER_FAKES_TEST_WORK_H_
#define ATTND_TESTS_SERVER_FAKES_TEST_WORK_H_

// Work as a front would fill it, over random data, that remembers what became
// of it.

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/work/work.h"

namespace attnd::server {

// Forward of one batch with one head unless it says more.
struct WorkShape {
  Op op = Op::kForward;
  DType dtype = DType::kF32;
  int64_t q_len = 1;
  int64_t kv_len = 1;
  int64_t heads = 1;
  int64_t dim = 8;
  Algorithm algorithm = Algorithm::kAuto;
  PlanKind plan = PlanKind::kAuto;
  Priority priority = Priority::kNormal;
  std::string client = "client";
  absl::Time deadline = absl::InfiniteFuture();  // of MonotonicNow()
  size_t piece_bytes = 1000;  // inputs come in pieces of this size
};

class TestWork {
 public:
  explicit TestWork(const WorkShape& shape);
  // Over the data of `other`, of the same shape, which has not been submitted.
  TestWork(const WorkShape& shape, const TestWork& other);

  const std::shared_ptr<Work>& work() const { return work_; }
  // Q's bytes, which an identity backend returns as O.
  const std::vector<std::byte>& q() const { return data_->q; }

  // Waits for `done` and returns what it got, outputs included, once.
  absl::StatusOr<WorkResult> Await();
  absl::Status AwaitStatus() { return Await().status(); }
  int done_calls() const;
  // Which thread called `done` last.
  std::thread::id done_on() const;
  int release_calls() const;

 private:
  struct Data {
    mutable std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::byte> q, kv, row;
    std::optional<absl::StatusOr<WorkResult>> result;
    int done_calls = 0;
    std::thread::id done_on;
    int release_calls = 0;
  };

  TestWork(const WorkShape& shape, std::shared_ptr<Data> data);

  std::shared_ptr<Data> data_;
  std::shared_ptr<Work> work_;
};

}  // namespace attnd::server

#endif  // ATTND_TESTS_SERVER_FAKES_TEST_WORK_H_
