// One query over eight keys, computed whole, and as two shards that are merged;
// the keys in a region, or in memory that is as good where there is no server
// of regions.

#include <cmath>
#include <cstdio>
#include <vector>

#include "attnd/client.h"
#include "attnd/device_region.h"
#include "attnd/merge.h"
#include "attnd/region.h"
#include "attnd/tls_guard.h"

using attnd::client::DType;

namespace {

constexpr int64_t kKeys = 8, kDim = 4;

// O and LSE of the query over keys [begin, end).
struct Result {
  std::vector<float> o = std::vector<float>(kDim);
  float lse = 0;
};

absl::Status Attend(attnd::client::Client& client, const std::vector<float>& q,
                    const float* kv, int64_t begin, int64_t end,
                    Result& result) {
  attnd::client::ForwardCall call;
  const float* shard = kv + begin * kDim;
  call.q = {DType::kF32, {1, 1, 1, kDim}, q.data()};
  call.k = call.v = {DType::kF32, {1, end - begin, 1, kDim}, shard};
  call.o = {DType::kF32, {1, 1, 1, kDim}, result.o.data()};
  call.lse = {DType::kF32, {1, 1, 1}, &result.lse};
  return client.Forward(call, {absl::Seconds(30)}).status();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  // Here, too, gRPC calls this program's functions.
  if (!attnd::client::UseTlsGuard()) return 2;
  auto client = attnd::client::Client::Create(argv[1]);
  if (!client.ok()) return 2;
  constexpr char kNobody[] = "/nowhere/region";
  auto region =
      attnd::client::Region::LeaseOrAllocate(kNobody, kKeys * kDim * 4);
  if (!region.ok() || (*region)->status().ok()) return 2;
  (*client)->AddRegion(*region);
  auto tensor = (*region)->Allocate(DType::kF32, {1, kKeys, 1, kDim});
  if (!tensor.ok()) return 2;
  // There may be no driver; there is no server in any case.
  if (attnd::client::AllocateDeviceRegion(kNobody, 4096, 0).ok()) return 2;

  auto* kv = static_cast<float*>(tensor->data);
  std::vector<float> q(kDim);
  for (int i = 0; i < kDim; ++i) q[i] = std::sin(i);
  for (int i = 0; i < kKeys * kDim; ++i) kv[i] = std::cos(3 * i);

  Result whole, left, right, merged;
  absl::Status status = Attend(**client, q, kv, 0, kKeys, whole);
  status.Update(Attend(**client, q, kv, 0, 3, left));
  status.Update(Attend(**client, q, kv, 3, kKeys, right));
  const auto partial = [](Result& r) {
    return attnd::client::Partial{{DType::kF32, {1, 1, 1, kDim}, r.o.data()},
                                  {DType::kF32, {1, 1, 1}, &r.lse}};
  };
  status.Update(attnd::client::MergePartials(
      {partial(left), partial(right)}, attnd::client::Layout::kBshd,
      {DType::kF32, {1, 1, 1, kDim}, merged.o.data()},
      {DType::kF32, {1, 1, 1}, &merged.lse}));
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 1;
  }
  for (int i = 0; i < kDim; ++i) {
    if (!(std::fabs(merged.o[i] - whole.o[i]) <= 1e-6f)) return 1;
  }
  std::printf("o[0] = %g, lse = %g\n", whole.o[0], whole.lse);
  return 0;
}
