// attnd with a device that loses 8 KiB a request: what the memory test must
// notice.

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "server/program/program.h"

namespace {

using attnd::Backend;

constexpr size_t kLostBytes = 8 << 10;

// Written, so that no compiler leaves the allocation out.
char* volatile lost;

void Lose() {
  lost = new char[kLostBytes];
  std::memset(lost, 1, kLostBytes);
}

class LeakyStream final : public attnd::Stream {
 public:
  explicit LeakyStream(std::unique_ptr<Stream> stream)
      : stream_(std::move(stream)) {}

  absl::StatusOr<std::byte*> Allocate(int64_t bytes) override {
    return stream_->Allocate(bytes);
  }
  absl::StatusOr<std::byte*> MapOutput(attnd::HostSpan host) override {
    return stream_->MapOutput(host);
  }
  absl::Status Upload(absl::Span<const attnd::ConstHostSpan> from,
                      std::byte* to) override {
    return stream_->Upload(from, to);
  }
  absl::Status UploadPinned(attnd::ConstHostSpan from, std::byte* to) override {
    return stream_->UploadPinned(from, to);
  }
  absl::Status Forward(absl::Span<const attnd::ForwardArgs> group,
                       const attnd::GroupOptions& options) override {
    for (size_t i = 0; i < group.size(); ++i) Lose();
    return stream_->Forward(group, options);
  }
  absl::Status Backward(absl::Span<const attnd::BackwardArgs> group,
                        const attnd::GroupOptions& options) override {
    for (size_t i = 0; i < group.size(); ++i) Lose();
    return stream_->Backward(group, options);
  }
  absl::Status Download(const std::byte* from, attnd::HostSpan to) override {
    return stream_->Download(from, to);
  }
  absl::StatusOr<double> Proceed(absl::FunctionRef<bool()> pause) override {
    return stream_->Proceed(pause);
  }
  absl::Status Use(std::shared_ptr<attnd::DeviceBuffer> buffer) override {
    return stream_->Use(std::move(buffer));
  }
  absl::StatusOr<int> Mark() override { return stream_->Mark(); }
  absl::Status WaitFor(int mark) override { return stream_->WaitFor(mark); }
  absl::StatusOr<attnd::PhaseTimes> Wait() override { return stream_->Wait(); }
  void Reset() override { stream_->Reset(); }

 private:
  std::unique_ptr<Stream> stream_;
};

class LeakyBackend final : public Backend {
 public:
  explicit LeakyBackend(std::unique_ptr<Backend> backend)
      : backend_(std::move(backend)) {}

  const attnd::DeviceInfo& device() const override {
    return backend_->device();
  }
  std::shared_ptr<attnd::HostMemory> host_memory() override {
    return backend_->host_memory();
  }
  absl::StatusOr<std::unique_ptr<attnd::Stream>> NewStream() override {
    auto stream = backend_->NewStream();
    if (!stream.ok()) return stream.status();
    return std::make_unique<LeakyStream>(*std::move(stream));
  }
  absl::StatusOr<std::shared_ptr<attnd::DeviceBuffer>> NewBuffer(
      int64_t bytes) override {
    return backend_->NewBuffer(bytes);
  }
  absl::Status Pin(attnd::HostSpan memory) override {
    return backend_->Pin(memory);
  }
  void Unpin(attnd::HostSpan memory) override { backend_->Unpin(memory); }
  absl::StatusOr<std::shared_ptr<attnd::DeviceBuffer>> Import(
      int fd, int64_t bytes) override {
    return backend_->Import(fd, bytes);
  }
  absl::Status Supports(attnd::Op op, const attnd::Problem& problem,
                        const attnd::GroupOptions& options) const override {
    return backend_->Supports(op, problem, options);
  }
  attnd::KernelInfo Kernel(attnd::Op op, const attnd::Problem& problem,
                           const attnd::GroupOptions& options) const override {
    return backend_->Kernel(op, problem, options);
  }
  int64_t ScratchBytes(attnd::Op op, const attnd::Problem& problem,
                       const attnd::GroupOptions& options) const override {
    return backend_->ScratchBytes(op, problem, options);
  }
  double CostFlops(attnd::Op op, const attnd::Problem& problem,
                   const attnd::GroupOptions& options) const override {
    return backend_->CostFlops(op, problem, options);
  }

 private:
  std::unique_ptr<Backend> backend_;
};

absl::StatusOr<std::vector<std::unique_ptr<Backend>>> CreateDevices(
    const attnd::server::DeviceOptions& options) {
  auto cpu = attnd::CreateCpuBackend(options.cpu);
  if (!cpu.ok()) return cpu.status();
  std::vector<std::unique_ptr<Backend>> devices;
  devices.push_back(std::make_unique<LeakyBackend>(*std::move(cpu)));
  return devices;
}

}  // namespace

int main(int argc, char** argv) {
  return attnd::server::RunProgram(argc, argv, CreateDevices);
}
