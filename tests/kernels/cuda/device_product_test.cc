// Products on a GPU, each way that they are multiplied, of numbers whose sums
// every type holds exactly.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cuda/baselines/naive/cublas.h"
#include "kernels/cuda/baselines/naive/product.h"
#include "kernels/dtype.h"
#include "tests/kernels/cuda/device_runner.h"

namespace attnd {
namespace {

using cuda::Cublas;
using cuda::Product;
using cuda::Repeat;

constexpr int64_t kM = 70, kN = 37, kK = 21;
constexpr int64_t kLd = 72;       // of every matrix
constexpr int64_t kApart = 6000;  // from a matrix to the next
constexpr int64_t kMatrices = 6;

// A, B or C of all products, on the host and on the device.
class Matrices {
 public:
  Matrices(DType dtype, std::mt19937& random)
      : dtype_(dtype), bytes_(kMatrices * kApart * SizeOf(dtype)) {
    std::uniform_int_distribution<int> draw(-1, 1);
    for (int64_t i = 0; i < kMatrices * kApart; ++i)
      StoreElement(bytes_.data(), dtype_, i, draw(random));
    EXPECT_EQ(cudaMalloc(&device_, bytes_.size()), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(device_, bytes_.data(), bytes_.size(),
                         cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  ~Matrices() { EXPECT_EQ(cudaFree(device_), cudaSuccess); }
  Matrices(const Matrices&) = delete;
  Matrices& operator=(const Matrices&) = delete;

  double Get(int64_t i) const { return LoadElement(bytes_.data(), dtype_, i); }
  void Set(int64_t i, double x) { StoreElement(bytes_.data(), dtype_, i, x); }
  void* device() const { return device_; }
  // Also where no matrix is.
  void ExpectOnDevice() const {
    std::vector<std::byte> bytes(bytes_.size());
    ASSERT_EQ(
        cudaMemcpy(bytes.data(), device_, bytes.size(), cudaMemcpyDeviceToHost),
        cudaSuccess);
    for (int64_t i = 0; i < kMatrices * kApart; ++i)
      ASSERT_EQ(LoadElement(bytes.data(), dtype_, i), Get(i)) << i;
  }

 private:
  const DType dtype_;
  std::vector<std::byte> bytes_;
  void* device_ = nullptr;
};

// What the product makes of C, on the host.
void Multiply(const Product& p, const Matrices& a, const Matrices& b,
              Matrices& c) {
  for (int64_t n = 0; n < kMatrices; ++n) {
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < p.n; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < p.k; ++k) {
          sum +=
              a.Get(n * kApart + (p.a_transposed ? k * kLd + i : i * kLd + k)) *
              b.Get(n * kApart + (p.b_transposed ? j * kLd + k : k * kLd + j));
        }
        const int64_t at = n * kApart + i * kLd + j;
        c.Set(at, p.scale * sum + (p.accumulate ? c.Get(at) : 0));
      }
    }
  }
}

class DeviceProductTest : public testing::DeviceTest,
                          public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped() && GetParam() && !Cublas::IsPresent())
      GTEST_SKIP() << "no cuBLAS on this machine";
  }

  void Check(Product product) {
    std::mt19937 random(1);
    const Matrices a(product.dtype, random), b(product.dtype, random);
    Matrices c(product.c_dtype, random);
    product.m = kM;
    product.n = kN;
    product.k = kK;
    product.lda = product.ldb = product.ldc = kLd;
    product.a = a.device();
    product.b = b.device();
    product.c = c.device();
    product.repeats = {Repeat{2, 3 * kApart, 3 * kApart, 3 * kApart},
                       Repeat{3, kApart, kApart, kApart}, Repeat{}};
    cuda::Workspace& workspace = device().workspace();
    int launches = 0;
    if (GetParam()) {
      const auto cublas = Cublas::Of(workspace);
      ASSERT_TRUE(cublas.ok()) << cublas.status();
      ASSERT_TRUE((*cublas)->Enqueue(product, launches).ok());
    } else {
      ASSERT_EQ(LaunchTiledProduct(product, workspace.stream()), cudaSuccess);
    }
    ASSERT_EQ(cudaStreamSynchronize(workspace.stream()), cudaSuccess);
    Multiply(product, a, b, c);
    c.ExpectOnDevice();
  }
};

TEST_P(DeviceProductTest, IsExactHoweverItsMatricesLie) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (DType c_dtype : {DType::kF32, dtype}) {
      for (int layout = 0; layout < 4; ++layout) {
        SCOPED_TRACE(absl::StrCat("dtype ", static_cast<int>(dtype), " to ",
                                  static_cast<int>(c_dtype), " layout ",
                                  layout));
        Product product;
        product.dtype = dtype;
        product.c_dtype = c_dtype;
        product.a_transposed = layout % 2 == 1;
        product.b_transposed = layout / 2 == 1;
        Check(product);
        product.scale = -0.5f;
        product.accumulate = c_dtype == DType::kF32;
        Check(product);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DeviceProductTest, ::testing::Bool(),
                         [](const auto& info) -> std::string {
                           return info.param ? "Cublas" : "Tiled";
                         });

}  // namespace
}  // namespace attnd
