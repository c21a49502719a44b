// All kernels on memory of another process: its values are right, nothing is
// read past its end, and whatever that process writes meanwhile, they end.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/cuda/exportable_memory.h"
#include "tests/kernels/cuda/group_image.h"
#include "tests/kernels/cuda/kernel_families.h"
#include "tests/kernels/cuda/memory_owner.h"

namespace attnd {
namespace {

using cuda::CudaStream;
using testing::BackwardFamilies;
using testing::BackwardOf;
using testing::CheckResults;
using testing::DenseProblem;
using testing::ExportableMemory;
using testing::ForwardFamilies;
using testing::ForwardOf;
using testing::GroupImage;
using testing::KernelFamily;
using testing::MemoryOwner;
using testing::Slack;
using testing::StreamOf;

using Bytes = std::vector<std::byte>;

int64_t BytesOf(DType dtype, int64_t elements) {
  return elements * SizeOf(dtype);
}

class InPlaceTest : public ::testing::TestWithParam<KernelFamily> {
 protected:
  void SetUp() override {
    if (CudaDeviceCount() == 0) GTEST_SKIP() << "no GPU here";
    auto backends = CreateCudaBackends({});
    ASSERT_TRUE(backends.ok()) << backends.status();
    backends_ = *std::move(backends);
    device_ = backend().device().index;
    auto stream = StreamOf(GetParam(), device_);
    ASSERT_TRUE(stream.ok()) << stream.status();
    stream_ = *std::move(stream);
  }
  Backend& backend() { return *backends_.front(); }

  // Has an owner allocate as much, and imports it.
  void Import(int64_t bytes) {
    owner_ = std::make_unique<MemoryOwner>();
    const auto exported = owner_->Allocate(bytes, device_);
    ASSERT_TRUE(exported.ok()) << exported.status();
    auto buffer = backend().Import(exported->get(), owner_->allocated());
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    buffer_ = *std::move(buffer);
  }

  template <class Args>
  absl::Status Run(const Args& args) {
    absl::Status status =
        buffer_ != nullptr ? stream_->Use(buffer_) : absl::OkStatus();
    if (status.ok()) {
      status = testing::Enqueue(args, GetParam().options, *stream_);
    }
    if (status.ok()) status = stream_->Wait().status();
    stream_->Reset();
    return status;
  }

  // Inputs and outputs lie in the owner's memory. Results are taken to the
  // host's outputs.
  template <class Args>
  absl::Status RunInPlace(const Args& args) {
    GroupImage<Args> image({&args, 1});
    absl::Status status = owner_->Write(image.bytes());
    if (status.ok()) status = Run(image.Rebind(buffer_->data()).front());
    Bytes after(image.bytes().size());
    if (status.ok()) status = owner_->Read(absl::MakeSpan(after));
    return status.ok() ? image.TakeOutputs(after) : status;
  }

  // Runs it again and again while the owner writes all over its memory.
  template <class Args>
  void RunScribbled(const Args& args) {
    constexpr int kRuns = 200;
    GroupImage<Args> image({&args, 1});
    ASSERT_TRUE(owner_->Write(image.bytes()).ok());
    const std::vector<Args> here = image.Rebind(buffer_->data());
    ASSERT_TRUE(owner_->Scribble().ok());
    for (int n = 0; n < kRuns; ++n) {
      const absl::Status status = Run(here.front());
      ASSERT_TRUE(status.ok()) << n << ": " << status;
    }
    const absl::StatusOr<int64_t> writes = owner_->StopScribbling();
    ASSERT_TRUE(writes.ok()) << writes.status();
    EXPECT_GT(*writes, 0);
  }

  std::vector<std::unique_ptr<Backend>> backends_;
  int device_ = 0;
  std::unique_ptr<CudaStream> stream_;
  std::unique_ptr<MemoryOwner> owner_;
  std::shared_ptr<DeviceBuffer> buffer_;
};

template <class Args>
int64_t ImageBytes(const Args& args) {
  return static_cast<int64_t>(GroupImage<Args>({&args, 1}).bytes().size());
}

::testing::AssertionResult IsAccurate(const DenseProblem& problem) {
  return CheckResults(problem.args.problem, problem.o.dtype(),
                      problem.o.Values(), problem.lse.Values(),
                      Slack::kApproximations);
}

class InPlaceForwardTest : public InPlaceTest {};

TEST_P(InPlaceForwardTest, IsAccurateAndAfterScribblingToo) {
  const auto problem = ForwardOf(GetParam());
  const auto larger = ForwardOf(Larger(GetParam()));
  Import(std::max(ImageBytes(problem->args), ImageBytes(larger->args)));
  if (HasFatalFailure()) return;
  for (bool scribbled : {false, true}) {
    if (scribbled) RunScribbled(larger->args);
    if (HasFatalFailure()) return;
    problem->o.Poison();
    problem->lse.Poison();
    const absl::Status status = RunInPlace(problem->args);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(IsAccurate(*problem)) << "scribbled " << scribbled;
  }
}

class InPlaceBackwardTest : public InPlaceTest {};

TEST_P(InPlaceBackwardTest, IsAccurateAndAfterScribblingToo) {
  const auto problem = BackwardOf(GetParam());
  problem->Solve();
  const auto larger = BackwardOf(Larger(GetParam()));
  Import(std::max(ImageBytes(problem->args), ImageBytes(larger->args)));
  if (HasFatalFailure()) return;
  for (bool scribbled : {false, true}) {
    if (scribbled) RunScribbled(larger->args);
    if (HasFatalFailure()) return;
    problem->PoisonOutputs();
    const absl::Status status = RunInPlace(problem->args);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(problem->IsAccurate()) << "scribbled " << scribbled;
  }
}

// Each tensor in turn ends where memory does, and what lies behind it is no
// memory: who reads or writes there breaks the device.
class InPlaceEndTest : public InPlaceTest {
 protected:
  // A tensor: how many bytes it has, what is in it, and what makes it begin
  // elsewhere, which returns where it began before.
  struct Place {
    const char* name;
    int64_t bytes;
    const void* host;
    std::function<std::byte*(std::byte*)> move;
  };

  // Runs `args`, whose memory is the device's, once for each of `places`.
  template <class Args>
  void RunAtEnd(const Args& args, const std::vector<Place>& places) {
    for (const Place& place : places) {
      SCOPED_TRACE(place.name);
      const auto memory = ExportableMemory::Create(place.bytes, device_);
      ASSERT_TRUE(memory.ok()) << memory.status();
      std::byte* to = (*memory)->data() + (*memory)->bytes() - place.bytes;
      CopyToDevice(to, place.host, place.bytes);
      if (HasFatalFailure()) return;
      std::byte* before = place.move(to);
      const absl::Status status = Run(args);
      place.move(before);
      ASSERT_TRUE(status.ok()) << status;
    }
  }
  // A copy on the device of all that a problem views.
  template <class Args>
  std::byte* Copy(const GroupImage<Args>& image) {
    Bytes bytes = image.bytes();
    copy_ = ExportableMemory::Create(bytes.size(), device_).value();
    CopyToDevice(copy_->data(), bytes.data(), bytes.size());
    return copy_->data();
  }
  // Until it is there: from memory that is not pinned cudaMemcpy returns once
  // the bytes have been taken, and nobody waits for them where kernels run on a
  // stream of their own or the memory goes.
  static void CopyToDevice(std::byte* to, const void* from, size_t bytes) {
    ASSERT_EQ(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  std::unique_ptr<ExportableMemory> copy_;
};

// What makes a view begin elsewhere.
template <class View>
std::function<std::byte*(std::byte*)> Mover(View& view) {
  return [&view](std::byte* to) {
    using Data = std::remove_pointer_t<decltype(view.data)>;
    Data* before = std::exchange(view.data, reinterpret_cast<Data*>(to));
    return static_cast<std::byte*>(
        const_cast<void*>(static_cast<const void*>(before)));
  };
}

class InPlaceForwardEndTest : public InPlaceEndTest {};

TEST_P(InPlaceForwardEndTest, NothingIsTouchedPastATensorsEnd) {
  const auto problem = ForwardOf(GetParam());
  const testing::DenseShape& s = GetParam().shape;
  GroupImage<ForwardArgs> image({&problem->args, 1});
  std::byte* copy = Copy(image);
  ForwardArgs args = image.Rebind(copy).front();
  std::vector<KvSegment> segments(args.problem.kv.begin(),
                                  args.problem.kv.end());
  args.problem.kv = segments;
  const int64_t q = BytesOf(s.dtype, s.batch * s.q_len * s.q_heads * s.dim);
  const int64_t kv = BytesOf(s.dtype, s.batch * s.kv_len * s.kv_heads * s.dim);
  const int64_t rows = BytesOf(DType::kF32, s.batch * s.q_len * s.q_heads);
  RunAtEnd(args, {{"Q", q, problem->q.view().data, Mover(args.problem.q)},
                  {"K", kv, problem->k.view().data, Mover(segments[0].k)},
                  {"V", kv, problem->v.view().data, Mover(segments[0].v)},
                  {"O", q, problem->o.view().data, Mover(args.o)},
                  {"LSE", rows, problem->lse.view().data, Mover(args.lse)}});
}

class InPlaceBackwardEndTest : public InPlaceEndTest {};

TEST_P(InPlaceBackwardEndTest, NothingIsTouchedPastATensorsEnd) {
  const auto problem = BackwardOf(GetParam());
  problem->Solve();
  const testing::DenseShape& s = GetParam().shape;
  GroupImage<BackwardArgs> image({&problem->args, 1});
  std::byte* copy = Copy(image);
  BackwardArgs args = image.Rebind(copy).front();
  std::vector<KvSegment> segments(args.problem.kv.begin(),
                                  args.problem.kv.end());
  args.problem.kv = segments;
  const int64_t q = BytesOf(s.dtype, s.batch * s.q_len * s.q_heads * s.dim);
  const int64_t kv = BytesOf(s.dtype, s.batch * s.kv_len * s.kv_heads * s.dim);
  const int64_t rows = BytesOf(DType::kF32, s.batch * s.q_len * s.q_heads);
  DenseProblem& forward = problem->forward;
  RunAtEnd(args,
           {{"Q", q, forward.q.view().data, Mover(args.problem.q)},
            {"K", kv, forward.k.view().data, Mover(segments[0].k)},
            {"V", kv, forward.v.view().data, Mover(segments[0].v)},
            {"dO", q, problem->d_o.view().data, Mover(args.d_o)},
            {"O", q, forward.o.view().data, Mover(args.o)},
            {"LSE", rows, forward.lse.view().data, Mover(args.lse)},
            {"dQ", q, problem->out.dq.view().data, Mover(args.dq)},
            {"dK", kv, problem->out.dk[0].view().data, Mover(segments[0].dk)},
            {"dV", kv, problem->out.dv[0].view().data, Mover(segments[0].dv)}});
}

INSTANTIATE_TEST_SUITE_P(Families, InPlaceForwardTest,
                         ::testing::ValuesIn(ForwardFamilies()),
                         testing::NameOf);
INSTANTIATE_TEST_SUITE_P(Families, InPlaceBackwardTest,
                         ::testing::ValuesIn(BackwardFamilies()),
                         testing::NameOf);
INSTANTIATE_TEST_SUITE_P(Families, InPlaceForwardEndTest,
                         ::testing::ValuesIn(ForwardFamilies()),
                         testing::NameOf);
INSTANTIATE_TEST_SUITE_P(Families, InPlaceBackwardEndTest,
                         ::testing::ValuesIn(BackwardFamilies()),
                         testing::NameOf);

}  // namespace
}  // namespace attnd
