#ifndef ATTND_TESTS_KERNELS_TEAM_FAULTY_MEMBER_H_
#define ATTND_TESTS_KERNELS_TEAM_FAULTY_MEMBER_H_

// A device of a team that breaks when it is told to.

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "kernels/backend.h"
#include "kernels/team/member_stream.h"

namespace attnd::testing {

// Counts the calls that streams of a device get, and says what each returns.
class FaultPlan {
 public:
  // The call after `calls` more, and all that come after it, fail with
  // `status`.
  void FailAfter(int calls, absl::Status status) {
    status_ = std::move(status);
    calls_ = 0;
    fails_at_ = calls;
  }
  int calls() const { return calls_; }
  bool has_failed() const { return fails_at_ >= 0 && calls_ > fails_at_; }

  absl::Status Next() {
    const int call = calls_++;
    const int at = fails_at_;
    return at < 0 || call < at ? absl::OkStatus() : status_;
  }

  // From now on there is no memory for buffers, or for kernels, or there is.
  void set_full(bool buffers, bool kernels) {
    buffers_full_ = buffers;
    kernels_full_ = kernels;
  }
  absl::Status NextBuffer() { return Room(buffers_full_); }
  absl::Status NextKernels() { return Room(kernels_full_); }
  // How often there was none.
  int refusals() const { return refusals_; }

  // Whether other devices' memory is out of direct reach.
  void set_remote(bool is_remote) { is_remote_ = is_remote; }
  bool is_remote() const { return is_remote_; }

 private:
  absl::Status Room(bool full) {
    if (!full) return Next();
    ++refusals_;
    return absl::ResourceExhaustedError("full");
  }

  std::atomic<bool> buffers_full_ = false, kernels_full_ = false;
  std::atomic<bool> is_remote_ = false;
  std::atomic<int> refusals_ = 0;
  std::atomic<int> calls_ = 0;
  std::atomic<int> fails_at_ = -1;
  absl::Status status_;
};

class FaultyStream : public MemberStream {
 public:
  // `is_host`: the device's memory is the host's own.
  FaultyStream(std::unique_ptr<MemberStream> stream, bool is_host,
               FaultPlan& faults, std::atomic<int64_t>& live_bytes)
      : stream_(std::move(stream)),
        is_host_(is_host),
        faults_(faults),
        live_bytes_(live_bytes) {}
  ~FaultyStream() override { Forget(); }

  absl::StatusOr<std::byte*> Allocate(int64_t bytes) override {
    if (absl::Status status = faults_.NextBuffer(); !status.ok()) return status;
    bytes_ += bytes;
    live_bytes_ += bytes;
    absl::StatusOr<std::byte*> memory = stream_->Allocate(bytes);
    // NaN, so that what nobody has brought shows.
    if (is_host_ && memory.ok()) std::memset(*memory, 0xff, bytes);
    return memory;
  }
  absl::Status Upload(const BlockCopy& copy) override {
    return Guarded([&] { return stream_->Upload(copy); });
  }
  absl::Status Pull(MemberStream& peer, const BlockCopy& copy) override {
    return Guarded([&] {
      return stream_->Pull(*static_cast<FaultyStream&>(peer).stream_, copy);
    });
  }
  absl::Status PullAll(MemberStream& peer,
                       absl::Span<const BlockCopy> copies) override {
    return Guarded([&] {
      return stream_->PullAll(*static_cast<FaultyStream&>(peer).stream_,
                              copies);
    });
  }
  bool Reaches(MemberStream& peer) override {
    return !faults_.is_remote() &&
           stream_->Reaches(*static_cast<FaultyStream&>(peer).stream_);
  }
  absl::Status Download(const BlockCopy& copy) override {
    return Guarded([&] { return stream_->Download(copy); });
  }
  absl::Status Forward(absl::Span<const ForwardArgs> group,
                       const GroupOptions& options) override {
    absl::Status room = faults_.NextKernels();
    return room.ok() ? stream_->Forward(group, options) : room;
  }
  absl::Status Backward(absl::Span<const BackwardArgs> group,
                        const GroupOptions& options) override {
    absl::Status room = faults_.NextKernels();
    return room.ok() ? stream_->Backward(group, options) : room;
  }
  absl::Status Sum(const BlockSum& sum) override {
    return Guarded([&] { return stream_->Sum(sum); });
  }
  absl::Status Dot(const RowDots& dots) override {
    return Guarded([&] { return stream_->Dot(dots); });
  }
  absl::Status Merge(const RowMerges& merges) override {
    return Guarded([&] { return stream_->Merge(merges); });
  }
  absl::Status Record(Queue queue, int point) override {
    return Guarded([&] { return stream_->Record(queue, point); });
  }
  absl::Status Await(Queue queue, MemberStream& of, int point) override {
    return Guarded([&] {
      return stream_->Await(queue, *static_cast<FaultyStream&>(of).stream_,
                            point);
    });
  }
  absl::StatusOr<PhaseTimes> Wait() override {
    absl::StatusOr<PhaseTimes> times = stream_->Wait();
    if (absl::Status status = faults_.Next(); !status.ok()) return status;
    return times;
  }
  void Reset() override {
    Forget();
    stream_->Reset();
  }

 private:
  template <class Do>
  absl::Status Guarded(Do todo) {
    absl::Status status = faults_.Next();
    return status.ok() ? todo() : status;
  }
  void Forget() {
    live_bytes_ -= bytes_;
    bytes_ = 0;
  }

  const std::unique_ptr<MemberStream> stream_;
  const bool is_host_;
  FaultPlan& faults_;
  std::atomic<int64_t>& live_bytes_;
  int64_t bytes_ = 0;
};

// Around another backend, whose streams of its own never fail.
class FaultyBackend : public Backend {
 public:
  FaultyBackend(std::unique_ptr<Backend> backend, int index)
      : backend_(std::move(backend)), device_(backend_->device()) {
    device_.index = index;
  }

  FaultPlan& faults() { return faults_; }
  // Allocated by members' streams, and not yet given back.
  int64_t live_bytes() const { return live_bytes_; }

  const DeviceInfo& device() const override { return device_; }
  std::shared_ptr<HostMemory> host_memory() override {
    return backend_->host_memory();
  }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    return backend_->NewStream();
  }
  absl::StatusOr<std::unique_ptr<MemberStream>> NewMemberStream() override {
    absl::StatusOr<std::unique_ptr<MemberStream>> stream =
        backend_->NewMemberStream();
    if (!stream.ok()) return stream.status();
    return std::make_unique<FaultyStream>(
        *std::move(stream), device_.shares_host_memory, faults_, live_bytes_);
  }
  absl::StatusOr<std::shared_ptr<DeviceBuffer>> NewBuffer(
      int64_t bytes) override {
    return backend_->NewBuffer(bytes);
  }
  absl::Status Pin(HostSpan memory) override { return backend_->Pin(memory); }
  void Unpin(HostSpan memory) override { backend_->Unpin(memory); }
  absl::StatusOr<std::shared_ptr<DeviceBuffer>> Import(int fd,
                                                       int64_t bytes) override {
    return backend_->Import(fd, bytes);
  }
  absl::Status Supports(Op op, const Problem& problem,
                        const GroupOptions& options) const override {
    return backend_->Supports(op, problem, options);
  }
  KernelInfo Kernel(Op op, const Problem& problem,
                    const GroupOptions& options) const override {
    return backend_->Kernel(op, problem, options);
  }
  int64_t ScratchBytes(Op op, const Problem& problem,
                       const GroupOptions& options) const override {
    return backend_->ScratchBytes(op, problem, options);
  }
  double CostFlops(Op op, const Problem& problem,
                   const GroupOptions& options) const override {
    return backend_->CostFlops(op, problem, options);
  }
  DeviceRates Rates() const override { return backend_->Rates(); }
  CutUnit Cut(const Problem& sequence,
              const GroupOptions& options) const override {
    return backend_->Cut(sequence, options);
  }

 private:
  const std::unique_ptr<Backend> backend_;
  DeviceInfo device_;
  FaultPlan faults_;
  std::atomic<int64_t> live_bytes_ = 0;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_TEAM_FAULTY_MEMBER_H_
