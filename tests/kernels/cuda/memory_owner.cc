#include "tests/kernels/cuda/memory_owner.h"

#include <cuda_runtime_api.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <limits>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/packet.h"
#include "tests/kernels/cuda/exportable_memory.h"

namespace attnd::testing {
namespace {

constexpr size_t kMostBytes = 1000;
constexpr char kArgument[] = "--memory_owner";
constexpr int kSocket = 3;  // where the process finds its socket

absl::Status Check(cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(cudaGetErrorString(error));
}

// Bytes that two processes share.
class SharedBytes {
 public:
  SharedBytes(int fd, size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) {
  }
  ~SharedBytes() {
    if (data_ != MAP_FAILED) munmap(data_, bytes_);
  }
  void* data() const { return data_ == MAP_FAILED ? nullptr : data_; }

 private:
  const size_t bytes_;
  void* const data_;
};

// Writes to memory as often as it can, and has begun to once it is made:
// setting up takes longer than many a kernel.
class Scribbler {
 public:
  explicit Scribbler(const ExportableMemory& memory, int device)
      : memory_(memory), thread_([this, device] {
          status_ = Run(device);
          Begin();
        }) {
    begun_.get_future().wait();
  }
  absl::StatusOr<int64_t> Stop() {
    stop_ = true;
    thread_.join();
    if (!status_.ok()) return status_;
    return writes_;
  }

 private:
  // Of each word of memory.
  static constexpr uint32_t kWords[] = {
      0,           // zeros
      0xffffffff,  // NaN of every type
      0x7f800000,  // infinities: f32
      0x7f807f80,  // bf16
      0x7c007c00,  // f16
      0xff80ff80,  // and below
      0x7f7f7f7f,  // as large as numbers are
      0x00010001,  // and as small
      0x3f803c00,  // and neither
  };
  static constexpr int64_t kPatternBytes = int64_t{1} << 20;
  static constexpr int kPatterns = std::size(kWords) + 4;  // four at random

  // Copies from the host run beside other processes' kernels, where kernels of
  // its own would take turns with them.
  absl::Status Run(int device) {
    std::mt19937_64 random(1);
    void* patterns = nullptr;
    cudaStream_t stream = nullptr;
    absl::Status status = Check(cudaSetDevice(device));
    if (status.ok()) {
      status = Check(cudaMallocHost(&patterns, kPatterns * kPatternBytes));
    }
    if (status.ok()) {
      status = Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    if (!status.ok()) return status;
    Fill(random, static_cast<uint32_t*>(patterns));
    while (status.ok() && !stop_) {
      status = Write(random, static_cast<std::byte*>(patterns), stream);
      Begin();
    }
    if (status.ok()) status = Check(cudaStreamSynchronize(stream));
    cudaStreamDestroy(stream);
    cudaFreeHost(patterns);
    return status;
  }
  void Begin() {
    if (!std::exchange(has_begun_, true)) begun_.set_value();
  }
  static void Fill(std::mt19937_64& random, uint32_t* patterns) {
    constexpr int64_t kCount = kPatternBytes / 4;
    for (int p = 0; p < kPatterns; ++p) {
      for (int64_t i = 0; i < kCount; ++i) {
        patterns[p * kCount + i] = p < static_cast<int>(std::size(kWords))
                                       ? kWords[p]
                                       : static_cast<uint32_t>(random());
      }
    }
  }
  // Some copies of any size, from a word on, to anywhere.
  absl::Status Write(std::mt19937_64& random, const std::byte* patterns,
                     cudaStream_t stream) {
    for (int n = 0; n < 32; ++n) {
      const int64_t most = std::min(kPatternBytes, memory_.bytes());
      const int64_t bytes = 4 + static_cast<int64_t>(random() % (most / 4)) * 4;
      const int64_t size = std::min(bytes, most);
      const int64_t at =
          static_cast<int64_t>(random() % ((memory_.bytes() - size) / 4 + 1)) *
          4;
      const std::byte* from =
          patterns + static_cast<int64_t>(random() % kPatterns) * kPatternBytes;
      absl::Status status = Check(cudaMemcpyAsync(
          memory_.data() + at, from, size, cudaMemcpyHostToDevice, stream));
      if (!status.ok()) return status;
      ++writes_;
    }
    return Check(cudaStreamSynchronize(stream));
  }

  const ExportableMemory& memory_;
  std::atomic<bool> stop_ = false;
  int64_t writes_ = 0;  // of the thread, until it has ended
  absl::Status status_;
  bool has_begun_ = false;  // the thread's, as it is said once
  std::promise<void> begun_;
  std::thread thread_;
};

// The process itself.
class Owner {
 public:
  struct Answer {
    std::string text;
    Descriptor descriptor;
  };

  absl::StatusOr<Answer> Do(const Packet& asked) {
    const std::vector<std::string> words = absl::StrSplit(asked.bytes, ' ');
    int64_t number = 0;
    if (words.size() > 1) (void)absl::SimpleAtoi(words[1], &number);
    if (words[0] == "allocate") {
      if (words.size() > 2) (void)absl::SimpleAtoi(words[2], &device_);
      return Allocate(number);
    }
    if (words[0] == "give_up") {
      memory_ = nullptr;
      return Answer{};
    }
    if (memory_ == nullptr) return absl::FailedPreconditionError("no memory");
    if (words[0] == "write" || words[0] == "read") {
      return Copy(words[0] == "write", number, asked.descriptor.get());
    }
    if (words[0] == "scribble") {
      scribbler_ = std::make_unique<Scribbler>(*memory_, device_);
      return Answer{};
    }
    if (words[0] == "stop" && scribbler_ != nullptr) {
      const absl::StatusOr<int64_t> writes = scribbler_->Stop();
      scribbler_ = nullptr;
      if (!writes.ok()) return writes.status();
      return Answer{absl::StrCat(*writes), {}};
    }
    return absl::UnimplementedError(asked.bytes);
  }

 private:
  absl::StatusOr<Answer> Allocate(int64_t bytes) {
    memory_ = nullptr;
    auto memory = ExportableMemory::Create(bytes, device_);
    if (!memory.ok()) return memory.status();
    absl::StatusOr<Descriptor> exported = (*memory)->Export();
    if (!exported.ok()) return exported.status();
    memory_ = *std::move(memory);
    return Answer{absl::StrCat(memory_->bytes()), *std::move(exported)};
  }
  absl::StatusOr<Answer> Copy(bool write, int64_t bytes, int fd) {
    const SharedBytes shared(fd, bytes);
    if (shared.data() == nullptr || bytes > memory_->bytes()) {
      return absl::InvalidArgumentError("bytes to copy");
    }
    // Copies of pageable memory return before they have ended.
    absl::Status status =
        Check(write ? cudaMemcpy(memory_->data(), shared.data(), bytes,
                                 cudaMemcpyHostToDevice)
                    : cudaMemcpy(shared.data(), memory_->data(), bytes,
                                 cudaMemcpyDeviceToHost));
    if (status.ok()) status = Check(cudaDeviceSynchronize());
    if (!status.ok()) return status;
    return Answer{};
  }

  int device_ = 0;
  std::unique_ptr<ExportableMemory> memory_;
  std::unique_ptr<Scribbler> scribbler_;
};

// Of `bytes`, for another process to see.
absl::StatusOr<Descriptor> NewSharedBytes(size_t bytes) {
  Descriptor memory(memfd_create("bytes", MFD_CLOEXEC));
  if (!memory.valid() || ftruncate(memory.get(), bytes) != 0) {
    return absl::InternalError("memory to share");
  }
  return memory;
}

}  // namespace

std::optional<int> RunAsMemoryOwner(int argc, char** argv) {
  if (argc != 2 || std::strcmp(argv[1], kArgument) != 0) return std::nullopt;
  Owner owner;
  while (true) {
    const absl::StatusOr<Packet> asked = ReceivePacket(kSocket, kMostBytes);
    if (!asked.ok()) _exit(0);  // whoever started this has gone
    const absl::StatusOr<Owner::Answer> answer = owner.Do(*asked);
    const std::string text =
        answer.ok() ? absl::StrCat("ok ", answer->text)
                    : absl::StrCat("no ", answer.status().ToString());
    const absl::Status sent =
        SendPacket(kSocket, text, answer.ok() ? answer->descriptor.get() : -1);
    if (!sent.ok()) _exit(1);
  }
}

MemoryOwner::MemoryOwner(const std::vector<std::string>& environment) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  socket_ = Descriptor(ends[0]);
  const Descriptor other(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, other.get(), kSocket);
  std::vector<char*> variables;
  for (const std::string& variable : environment) {
    variables.push_back(const_cast<char*>(variable.c_str()));
  }
  for (char** variable = environ; *variable != nullptr; ++variable) {
    variables.push_back(*variable);
  }
  variables.push_back(nullptr);
  char name[] = "memory_owner";
  char argument[sizeof(kArgument)];
  std::memcpy(argument, kArgument, sizeof(kArgument));
  char* const arguments[] = {name, argument, nullptr};
  if (posix_spawn(&process_, "/proc/self/exe", &actions, nullptr, arguments,
                  variables.data()) != 0) {
    process_ = -1;
  }
  posix_spawn_file_actions_destroy(&actions);
}

MemoryOwner::~MemoryOwner() { Kill(); }

void MemoryOwner::Kill() {
  if (process_ < 0) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  process_ = -1;
}

absl::StatusOr<MemoryOwner::Answer> MemoryOwner::Ask(const std::string& what,
                                                     int descriptor) {
  absl::Status status = SendPacket(socket_.get(), what, descriptor);
  if (!status.ok()) return status;
  absl::StatusOr<Packet> answer = ReceivePacket(socket_.get(), kMostBytes);
  if (!answer.ok()) return answer.status();
  absl::string_view text = answer->bytes;
  if (!absl::ConsumePrefix(&text, "ok ")) {
    return absl::InternalError(absl::StrCat(what, ": ", text));
  }
  return Answer{std::string(text), std::move(answer->descriptor)};
}

absl::StatusOr<Descriptor> MemoryOwner::Allocate(int64_t bytes, int device) {
  absl::StatusOr<Answer> answer =
      Ask(absl::StrCat("allocate ", bytes, " ", device));
  if (!answer.ok()) return answer.status();
  if (!absl::SimpleAtoi(answer->text, &allocated_)) {
    return absl::InternalError(answer->text);
  }
  return std::move(answer->descriptor);
}

absl::Status MemoryOwner::Write(absl::Span<const std::byte> from) {
  absl::StatusOr<Descriptor> memory = NewSharedBytes(from.size());
  if (!memory.ok()) return memory.status();
  const SharedBytes shared(memory->get(), from.size());
  if (shared.data() == nullptr) return absl::InternalError("memory to share");
  std::memcpy(shared.data(), from.data(), from.size());
  return Ask(absl::StrCat("write ", from.size()), memory->get()).status();
}

absl::Status MemoryOwner::Read(absl::Span<std::byte> to) {
  absl::StatusOr<Descriptor> memory = NewSharedBytes(to.size());
  if (!memory.ok()) return memory.status();
  const SharedBytes shared(memory->get(), to.size());
  if (shared.data() == nullptr) return absl::InternalError("memory to share");
  absl::Status status =
      Ask(absl::StrCat("read ", to.size()), memory->get()).status();
  if (status.ok()) std::memcpy(to.data(), shared.data(), to.size());
  return status;
}

absl::Status MemoryOwner::Scribble() { return Ask("scribble").status(); }

absl::StatusOr<int64_t> MemoryOwner::StopScribbling() {
  const absl::StatusOr<Answer> answer = Ask("stop");
  if (!answer.ok()) return answer.status();
  int64_t writes = 0;
  if (!absl::SimpleAtoi(answer->text, &writes)) {
    return absl::InternalError(answer->text);
  }
  return writes;
}

absl::Status MemoryOwner::GiveUp() { return Ask("give_up").status(); }

}  // namespace attnd::testing
