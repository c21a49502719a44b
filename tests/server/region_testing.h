#ifndef ATTND_TESTS_SERVER_REGION_TESTING_H_
#define ATTND_TESTS_SERVER_REGION_TESTING_H_

// A client of the region socket that may do anything, and a device that tells
// who pins.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/descriptor.h"
#include "base/mutex.h"
#include "kernels/backend.h"
#include "tests/server/fakes/identity_backend.h"

namespace attnd::server {

// How many this process has open.
int OpenDescriptors();

// A folder of its own for as long as it lives.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  std::string operator/(const std::string& name) const {
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

// All of a file in memory, mapped shared.
class TestMapping {
 public:
  TestMapping(int fd, int64_t bytes);
  ~TestMapping();
  TestMapping(const TestMapping&) = delete;
  TestMapping& operator=(const TestMapping&) = delete;

  std::byte* data() const { return data_; }
  void Fill(uint8_t value);
  bool IsAll(uint8_t value) const;

 private:
  std::byte* data_;
  int64_t bytes_;
};

// A memfd, as a GPU's memory is to IdentityBackend.
Descriptor NewMemory(int64_t bytes);
// What tells a file from every other that is there now.
uint64_t FileNumber(int fd);

std::string LeaseRequest(int64_t bytes);
std::string ImportRequest(int64_t bytes, const std::string& gpu_uuid);

// What came back: a region, or why there is none.
struct RegionAnswer {
  absl::Status status;
  std::string region;
  int64_t bytes = 0;
  std::string server_instance_id;
  Descriptor memory;
};

// Waits for kHangLimit at most for whatever it does.
class RegionClient {
 public:
  explicit RegionClient(const std::string& path);

  // False: the server has closed the connection.
  bool Send(const std::string& packet, const std::vector<int>& fds = {});
  // UNKNOWN: the connection ended without an answer.
  RegionAnswer Receive();
  RegionAnswer Call(const std::string& packet,
                    const std::vector<int>& fds = {});
  bool HasEnded();
  void Close() { socket_ = Descriptor(); }
  int socket() const { return socket_.get(); }

 private:
  Descriptor socket_;
};

// Tells which threads pin, and on which ones imported memory goes.
class PinWatcher : public IdentityBackend {
 public:
  using IdentityBackend::IdentityBackend;

  struct Pinned {
    std::thread::id thread;
    absl::Time at;
  };

  // How long it takes to pin from now on, and to unpin.
  void set_pin_time(absl::Duration time) {
    pin_micros_ = absl::ToInt64Microseconds(time);
  }

  absl::Status Pin(HostSpan memory) override;
  void Unpin(HostSpan memory) override;
  absl::StatusOr<std::shared_ptr<DeviceBuffer>> Import(int fd,
                                                       int64_t bytes) override;
  std::vector<Pinned> pinned() const;
  std::vector<Pinned> unpinned() const;
  std::vector<std::thread::id> unmapped_by() const;

 private:
  void Note(std::vector<Pinned>& list);

  std::atomic<int64_t> pin_micros_{0};
  mutable Mutex mutex_;
  std::vector<Pinned> pinned_ ABSL_GUARDED_BY(mutex_);
  std::vector<Pinned> unpinned_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread::id> unmapped_by_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::server

#endif  // ATTND_TESTS_SERVER_REGION_TESTING_H_
