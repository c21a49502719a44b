#include "server/region/lessor.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "proto/wire/status.h"
#include "server/region/lent_regions.h"

namespace attnd::server {
namespace {

// When somebody whom a limit refuses may try again: others, or its own, hold
// theirs for long.
constexpr absl::Duration kRetry = absl::Seconds(1);

// One of each kind, as each pins for all of its kind. A team's memory is its
// members'.
std::vector<Backend*> OneOfEachKind(const std::vector<Backend*>& devices) {
  std::vector<Backend*> ones;
  for (Backend* device : devices) {
    if (device->device().members > 0) continue;
    const bool is_new =
        std::none_of(ones.begin(), ones.end(), [device](const Backend* one) {
          return one->device().kind == device->device().kind;
        });
    if (is_new) ones.push_back(device);
  }
  return ones;
}

// Those that some device is next to, each once.
std::vector<int> NumaNodes(const std::vector<Backend*>& devices) {
  std::vector<int> nodes;
  for (const Backend* device : devices) {
    const int node = device->device().numa_node;
    if (node < 0) continue;
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) {
      nodes.push_back(node);
    }
  }
  return nodes;
}

// Of those whose memory can be told from others'.
int64_t GpuBytes(const std::vector<Backend*>& devices) {
  int64_t bytes = 0;
  for (const Backend* device : devices) {
    if (!device->device().uuid.empty()) bytes += device->device().memory_bytes;
  }
  return bytes;
}

}  // namespace

bool TakesDeviceMemory(const RegionOptions& options,
                       const std::vector<const DeviceInfo*>& devices) {
  return options.enabled() && options.import_memory_bytes > 0 &&
         std::any_of(
             devices.begin(), devices.end(),
             [](const DeviceInfo* device) { return !device->uuid.empty(); });
}

absl::StatusOr<std::unique_ptr<Lessor>> Lessor::Start(
    const RegionOptions& options, std::vector<Backend*> devices,
    WriteLine log) {
  std::unique_ptr<Lessor> lessor(new Lessor(options, std::move(devices)));
  auto keeper = Keeper::Start();
  if (!keeper.ok()) return keeper.status();
  lessor->keeper_ = *std::move(keeper);
  const auto classes = DivideRegions(options.memory_bytes, options.slab_bytes);
  auto pool = SlabPool::Start({.classes = classes,
                               .numa_nodes = NumaNodes(lessor->devices_),
                               .pinners = OneOfEachKind(lessor->devices_),
                               .keeper = lessor->keeper_,
                               .log = std::move(log)});
  if (!pool.ok()) {
    return absl::Status(
        pool.status().code(),
        absl::StrCat("--region_memory: ", options.memory_bytes,
                     " bytes cannot be had: ", pool.status().message()));
  }
  lessor->pool_ = *std::move(pool);
  return lessor;
}

Lessor::Lessor(const RegionOptions& options, std::vector<Backend*> devices)
    : options_(options),
      devices_(std::move(devices)),
      limits_(LeaseLimits::Create(
          options, options.memory_bytes,
          std::min(options.import_memory_bytes, GpuBytes(devices_)))) {}

Lessor::~Lessor() {
  if (keeper_ != nullptr) keeper_->Stop();
}

absl::StatusOr<Lessor::Lease> Lessor::LeaseHostMemory(
    uid_t user, const attn::v1::LeaseHostMemory& asked) {
  if (draining_) return RefuseDraining();
  if (options_.memory_bytes == 0) {
    return Refuse(
        RegionRefusal::kRequest,
        absl::UnimplementedError(
            "this server has no memory for regions: --region_memory"));
  }
  if (asked.bytes() <= 0) {
    return Refuse(RegionRefusal::kRequest,
                  wire::FieldError("lease.bytes", "must be positive"));
  }
  if (asked.bytes() > pool_->largest_bytes()) {
    return Refuse(
        RegionRefusal::kRequest,
        wire::FieldError("lease.bytes", absl::StrCat("must be at most ",
                                                     pool_->largest_bytes())));
  }
  absl::StatusOr<std::string> id = NewRegionId();
  if (!id.ok()) return id.status();
  auto slab = pool_->Take(asked.bytes());
  if (!slab.ok()) return Refuse(RegionRefusal::kMemory, slab.status());
  auto held = limits_->TryHold(RegionKind::kHost, user, (*slab)->bytes(),
                               MonotonicNow());
  if (const auto* why = std::get_if<RegionRefusal>(&held)) {
    pool_->PutBack(*std::move(slab));
    return RefuseByLimit(*why);
  }
  Lease lease;
  lease.descriptor = (*slab)->descriptor();
  lease.region = LendSlab(
      *std::move(id), *std::move(slab), pool_,
      [held = std::get<0>(std::move(held))]() mutable { held = nullptr; });
  table_.Add(lease.region);
  return lease;
}

absl::StatusOr<Lessor::Import> Lessor::AdmitImport(
    uid_t user, const attn::v1::ImportDeviceMemory& asked) {
  if (draining_) return RefuseDraining();
  const int64_t limit = limits_->limit_bytes(RegionKind::kDevice);
  if (limit == 0) {
    return Refuse(RegionRefusal::kRequest,
                  absl::UnimplementedError(
                      "this server takes no memory of GPUs: it has none, or "
                      "--region_import_memory is 0"));
  }
  if (asked.bytes() <= 0) {
    return Refuse(RegionRefusal::kRequest,
                  wire::FieldError("import.bytes", "must be positive"));
  }
  if (asked.bytes() > limit) {
    return Refuse(RegionRefusal::kRequest,
                  wire::FieldError("import.bytes",
                                   absl::StrCat("must be at most ", limit)));
  }
  const absl::StatusOr<int> device = FindDevice(asked.gpu_uuid());
  if (!device.ok()) return Refuse(RegionRefusal::kRequest, device.status());
  auto held = limits_->TryHold(RegionKind::kDevice, user, asked.bytes(),
                               MonotonicNow());
  if (const auto* why = std::get_if<RegionRefusal>(&held)) {
    return RefuseByLimit(*why);
  }
  return Import{*device, asked.bytes(), std::get<0>(std::move(held))};
}

absl::StatusOr<Lessor::Lease> Lessor::ImportDeviceMemory(Import import,
                                                         int fd) {
  absl::StatusOr<std::string> id = NewRegionId();
  if (!id.ok()) return id.status();
  auto buffer = devices_[import.device]->Import(fd, import.bytes);
  if (!buffer.ok()) return Refuse(RegionRefusal::kDevice, buffer.status());
  Lease lease;
  lease.region = LendDeviceMemory(
      *std::move(id), *std::move(buffer), import.bytes, import.device, keeper_,
      [held = std::move(import.held)]() mutable { held = nullptr; });
  table_.Add(lease.region);
  return lease;
}

absl::Status Lessor::Refuse(RegionRefusal why, absl::Status status) {
  ++refused_[static_cast<int>(why)];
  if (absl::IsResourceExhausted(status) && !wire::RetryDelay(status)) {
    return wire::WithRetryInfo(std::move(status), kRetry);
  }
  return status;
}

absl::Status Lessor::RefuseByLimit(RegionRefusal why) {
  const char* message = "no memory of GPUs may be lent now";
  if (why == RegionRefusal::kLimitOfUser) {
    message = "this user has as many regions, or as much in them, as it may";
  }
  if (why == RegionRefusal::kRateOfImports) {
    message = "this user lends memory of GPUs too often";
  }
  return Refuse(why, absl::ResourceExhaustedError(message));
}

absl::Status Lessor::RefuseDraining() {
  return Refuse(RegionRefusal::kDraining,
                absl::UnavailableError("the server is shutting down"));
}

absl::StatusOr<int> Lessor::FindDevice(const std::string& uuid) const {
  for (size_t i = 0; i < devices_.size(); ++i) {
    const std::string& of = devices_[i]->device().uuid;
    if (!of.empty() && of == uuid) return static_cast<int>(i);
  }
  return wire::FieldError("import.gpu_uuid", "is of no GPU of this server");
}

RegionStats Lessor::stats() const {
  RegionStats stats;
  const HeldRegions host = limits_->held(RegionKind::kHost);
  stats.leases = host.count;
  stats.leased_bytes = host.bytes;
  const HeldRegions device = limits_->held(RegionKind::kDevice);
  stats.imports = device.count;
  stats.imported_bytes = device.bytes;
  const SlabPoolStats pool = pool_->stats();
  stats.free_bytes = pool.free_bytes;
  stats.replaced = pool.replaced;
  stats.pinned_pieces = pool.pinned_at_start + pool.pinned_by_keeper;
  for (int i = 0; i < kRegionRefusals; ++i) stats.refused[i] = refused_[i];
  return stats;
}

}  // namespace attnd::server
