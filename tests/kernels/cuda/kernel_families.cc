#include "tests/kernels/cuda/kernel_families.h"

#include "kernels/cuda/device/gpu.h"

namespace attnd::testing {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

const char* NameOfType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
  }
  return "";
}

// Two sequences, whose last tiles of rows and of columns are not whole.
DenseShape ShapeOf(DType dtype, int64_t dim) {
  return {.dtype = dtype,
          .batch = 2,
          .q_len = 200,
          .kv_len = 261,
          .q_heads = 2,
          .kv_heads = 1,
          .dim = dim,
          .mask = {.causal = true}};
}

KernelFamily FamilyOf(DType dtype, int64_t dim) {
  return {.name = std::string(NameOfType(dtype)) + "D" + std::to_string(dim),
          .shape = ShapeOf(dtype, dim)};
}

// All types and dims, with Hopper's kernels and without.
std::vector<KernelFamily> Fused() {
  std::vector<KernelFamily> families;
  for (DType dtype : kTypes) {
    for (int64_t dim : {64, 96, 128, 192, 256}) {
      for (bool any_gpu : {false, true}) {
        if (dtype == DType::kF32 && any_gpu) continue;  // has the same
        KernelFamily family = FamilyOf(dtype, dim);
        if (any_gpu) family.name += "OnAnyGpu";
        family.any_gpu = any_gpu;
        families.push_back(family);
      }
    }
  }
  return families;
}

// Each of them with scores that are not plain.
void AddSoftcap(std::vector<KernelFamily>& families) {
  const std::vector<KernelFamily> plain = families;
  for (KernelFamily family : plain) {
    if (family.shape.dim != 128) continue;
    family.name += "Softcap";
    family.softcap = 3;
    families.push_back(family);
  }
}

void AddAlgorithm(Algorithm algorithm, const std::string& name,
                  std::vector<KernelFamily>& families) {
  for (DType dtype : kTypes) {
    KernelFamily family = FamilyOf(dtype, 64);
    family.name = name + family.name;
    family.options.algorithm = algorithm;
    families.push_back(family);
  }
}

void SetUp(const KernelFamily& family, Problem& problem) {
  if (family.softcap != 0) problem.softcap = family.softcap;
}

}  // namespace

std::vector<KernelFamily> ForwardFamilies() {
  std::vector<KernelFamily> families = Fused();
  for (DType dtype : kTypes) {
    for (int64_t dim : {64, 128, 256}) {
      // In one part, and in several.
      for (int64_t kv_len : {256, 9000}) {
        KernelFamily family = FamilyOf(dtype, dim);
        family.name += "Decode" + std::to_string(kv_len);
        family.shape.q_len = 2;
        family.shape.kv_len = kv_len;
        families.push_back(family);
      }
    }
  }
  AddSoftcap(families);
  AddAlgorithm(Algorithm::kNaive, "Naive", families);
  AddAlgorithm(Algorithm::kFlashAttention1, "FlashAttention1", families);
  return families;
}

std::vector<KernelFamily> BackwardFamilies() {
  std::vector<KernelFamily> families = Fused();
  AddSoftcap(families);
  const std::vector<KernelFamily> any_order = families;
  for (KernelFamily family : any_order) {
    family.name += "Deterministic";
    family.options.deterministic = true;
    families.push_back(family);
  }
  AddAlgorithm(Algorithm::kNaive, "Naive", families);
  return families;
}

KernelFamily Larger(KernelFamily family) {
  DenseShape& shape = family.shape;
  shape.q_heads = 8;
  shape.kv_heads = 4;
  if (shape.q_len > 16) shape.q_len = shape.kv_len = 1500;
  return family;
}

std::ostream& operator<<(std::ostream& out, const KernelFamily& family) {
  return out << family.name;
}

std::string NameOf(const ::testing::TestParamInfo<KernelFamily>& info) {
  return info.param.name;
}

std::unique_ptr<DenseProblem> ForwardOf(const KernelFamily& family) {
  auto problem = std::make_unique<DenseProblem>(1, family.shape);
  SetUp(family, problem->args.problem);
  return problem;
}

std::unique_ptr<GradientProblem> BackwardOf(const KernelFamily& family) {
  auto problem = std::make_unique<GradientProblem>(1, family.shape);
  SetUp(family, problem->problem());
  problem->PoisonOutputs();
  return problem;
}

absl::StatusOr<std::unique_ptr<cuda::CudaStream>> StreamOf(
    const KernelFamily& family, int device) {
  const absl::StatusOr<cuda::Gpu> gpu = cuda::DescribeGpu(device);
  if (!gpu.ok()) return gpu.status();
  return cuda::CudaStream::Create(device,
                                  family.any_gpu ? cuda::AsAnyGpu(*gpu) : *gpu);
}

absl::Status Enqueue(const ForwardArgs& args, const GroupOptions& options,
                     Stream& stream) {
  absl::Status status = stream.Forward({&args, 1}, options);
  return status.ok() ? stream.Proceed([] { return false; }).status() : status;
}

absl::Status Enqueue(const BackwardArgs& args, const GroupOptions& options,
                     Stream& stream) {
  absl::Status status = stream.Backward({&args, 1}, options);
  return status.ok() ? stream.Proceed([] { return false; }).status() : status;
}

}  // namespace attnd::testing
