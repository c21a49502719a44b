#ifndef ATTND_TESTS_EMULATION_CP_ASYNC_H_
#define ATTND_TESTS_EMULATION_CP_ASYNC_H_

// Copies that a thread starts and waits for by groups: 16 bytes to shared
// memory (cp.async), and boxes from there to tensors by the copy engine.

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

namespace attnd::emulation {

// Of one thread. What a copy is to write is NaN from its start to its end,
// which is when the thread waits for its group, or earlier.
class CpAsyncGroups {
 public:
  void Start(uint32_t to, const void* from, uint32_t bytes);
  void Commit();
  void Wait(size_t pending);

 private:
  struct Copy {
    std::byte* to;
    const std::byte* from;
    uint32_t bytes;  // of 16; the rest becomes 0
  };
  static void Make(const std::vector<Copy>& group);

  std::vector<Copy> open_;
  std::deque<std::vector<Copy>> groups_;
};

// Of one thread: stores read shared memory as late as they may, and write as
// late as they may after that.
class StoreGroups {
 public:
  struct Store {
    std::function<void()> read, write;
  };
  void Add(Store store) { open_.push_back(std::move(store)); }
  void Commit();
  void WaitUntilRead();
  void WaitUntilWritten();
  // Whether shared memory may go.
  bool AllRead() const { return open_.empty() && to_read_.empty(); }

 private:
  std::vector<Store> open_, to_read_, to_write_;
};

// For the thread that runs.
void StartCpAsync(uint32_t to, const void* from, uint32_t bytes);
void CommitCpAsync();
void WaitForCpAsync(size_t pending);
void CommitStoreGroup();
void WaitForStoreGroups(bool read);

}  // namespace attnd::emulation

#endif  // ATTND_TESTS_EMULATION_CP_ASYNC_H_
