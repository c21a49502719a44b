#ifndef ATTND_TESTS_INTEGRATION_LOAD_H_
#define ATTND_TESTS_INTEGRATION_LOAD_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/integration/process.h"

namespace attnd::testing {

// Threads that do one thing over and over.
class Load {
 public:
  // Until it is destroyed. `once` says what went wrong; empty: nothing.
  void Add(std::function<std::string()> once) {
    Worker& worker = *workers_.emplace_back(std::make_unique<Worker>());
    worker.thread = std::thread([this, &worker, once = std::move(once)] {
      while (!enough_) {
        const std::string wrong = once();
        EXPECT_EQ(wrong, "");
        ++worker.done;
      }
    });
  }
  ~Load() {
    enough_ = true;
    for (const auto& worker : workers_) worker->thread.join();
  }
  // Returns once each has begun and ended its thing `times` times more.
  bool Await(int times) const {
    std::vector<int> until;
    for (const auto& worker : workers_) {
      until.push_back(worker->done + times + 1);
    }
    return Eventually([&] {
      return std::equal(
          until.begin(), until.end(), workers_.begin(),
          [](int least, const auto& worker) { return worker->done >= least; });
    });
  }

 private:
  struct Worker {
    std::atomic<int> done{0};
    std::thread thread;
  };
  std::atomic<bool> enough_{false};
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_INTEGRATION_LOAD_H_
