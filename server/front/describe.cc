#include "server/front/describe.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "kernels/attention.h"
#include "kernels/request.h"
#include "server/config/version.h"
#include "server/front/decode.h"
#include "server/net/address.h"
#include "server/region/divide_regions.h"
#include "server/region/lessor.h"
#include "server/transfer/transfer_table.h"
#include "server/work/device_name.h"

namespace attnd::server {
namespace {

// What a usual forward runs as.
std::string KernelName(const Backend& backend) {
  RequestSpec spec;
  for (TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
    auto& tensor = spec.inputs[id].emplace();
    tensor.shape = {1, 1024, 1, 128};
    tensor.dtype = DType::kBF16;
  }
  const auto request = Request::Create(std::move(spec));
  if (!request.ok()) return "";
  const auto bound = (*request)->Bind({}, nullptr);
  return backend.Kernel(Op::kForward, bound->forward.at(0).problem, {}).name;
}

std::string DescribeRegions(const RegionOptions& r,
                            const std::vector<const DeviceInfo*>& devices) {
  std::string line = absl::StrFormat("regions on unix:%s: %d MiB", r.socket,
                                     r.memory_bytes >> 20);
  const char* separator = " of the host, ";
  for (const SlabClass& of : DivideRegions(r.memory_bytes, r.slab_bytes)) {
    absl::StrAppendFormat(&line, "%s%d of %d MiB", separator, of.count,
                          of.bytes >> 20);
    separator = ", ";
  }
  if (TakesDeviceMemory(r, devices)) {
    absl::StrAppend(&line, "; of GPUs, what clients lend");
  }
  return line;
}

}  // namespace

std::string DescribeBuild(absl::string_view grpc_version) {
  return absl::StrCat(
      "gRPC ", grpc_version, ", Protocol Buffers ",
      google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION),
      ", compiler ", __VERSION__);
}

std::string NewInstanceId() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 4; ++i) absl::StrAppendFormat(&id, "%08x", random());
  return id;
}

attn::v1::GetServerInfoResponse MakeServerInfo(
    const std::string& instance_id, const ServerOptions& options,
    const std::vector<std::unique_ptr<Backend>>& backends) {
  attn::v1::GetServerInfoResponse info;
  info.set_server_instance_id(instance_id);
  info.set_version(kVersion);
  std::vector<const DeviceInfo*> devices;
  for (const auto& backend : backends) {
    const DeviceInfo& from = backend->device();
    devices.push_back(&from);
    attn::v1::Device& to = *info.add_devices();
    to.set_kind(from.kind);
    to.set_index(from.index);
    to.set_name(from.name);
    to.set_memory_bytes(from.memory_bytes);
  }
  attn::v1::Limits& limits = *info.mutable_limits();
  limits.set_max_message_bytes(options.max_message_bytes);
  limits.set_memory_limit_bytes(options.memory_limit_bytes);
  limits.set_max_queue_requests(options.scheduler.max_queue_requests);
  limits.set_max_queue_flops(options.scheduler.max_queue_flops);
  limits.set_max_request_flops(options.scheduler.max_request_flops);
  limits.set_max_head_dim(kMaxHeadDim);
  limits.set_max_request_sequences(kMaxSequences);
  limits.set_max_transfer_streams(options.max_transfer_streams);
  info.add_features("exchange");
  const RegionOptions& r = options.regions;
  if (r.memory_bytes > 0) {
    limits.set_region_bytes(
        DivideRegions(r.memory_bytes, r.slab_bytes).back().bytes);
    info.add_features("regions");
  }
  if (TakesDeviceMemory(r, devices)) info.add_features("regions.cuda");
  if (std::any_of(devices.begin(), devices.end(), [](const DeviceInfo* device) {
        return device->members > 0;
      })) {
    info.add_features("plans");
  }
  info.set_preferred_chunk_bytes(TransferTable::kPreferredChunkBytes);
  return info;
}

std::vector<std::string> DescribeServer(
    const ServerOptions& options,
    const std::vector<std::unique_ptr<Backend>>& backends, int port,
    int metrics_port, int admin_port) {
  std::vector<std::string> lines = {absl::StrCat("attnd ", kVersion)};
  std::vector<const DeviceInfo*> devices;
  for (const auto& backend : backends) {
    const DeviceInfo& device = backend->device();
    devices.push_back(&device);
    lines.push_back(
        absl::StrFormat("device %s, %d MiB, kernels %s", DeviceString(device),
                        device.memory_bytes >> 20, KernelName(*backend)));
  }
  const SchedulerOptions& s = options.scheduler;
  const MemoryShares shares = DivideMemory(options.memory_limit_bytes);
  lines.push_back(absl::StrFormat(
      "memory limit %d MiB: %d MiB for requests that arrive, %d MiB for those "
      "admitted; messages up to %d MiB",
      options.memory_limit_bytes >> 20, shares.transport_bytes >> 20,
      shares.account_bytes >> 20, options.max_message_bytes >> 20));
  lines.push_back(absl::StrFormat(
      "%d lanes a device; queue of %d requests, %g FLOPs; up to %g FLOPs a "
      "request; batch delay %s",
      s.lanes_per_device, s.max_queue_requests, s.max_queue_flops,
      s.max_request_flops, absl::FormatDuration(s.max_batch_delay)));
  lines.push_back(absl::StrFormat("up to %d connections, %d of a client",
                                  options.max_connections,
                                  options.max_connections_per_client));
  if (port >= 0) {
    lines.push_back("listening on " + Address(options.host, port));
  }
  if (!options.unix_socket.empty()) {
    lines.push_back("listening on unix:" + options.unix_socket);
  }
  if (options.regions.enabled()) {
    lines.push_back(DescribeRegions(options.regions, devices));
  }
  if (metrics_port >= 0) {
    lines.push_back("metrics on http://" + Address(options.host, metrics_port) +
                    "/metrics");
  }
  if (const auto admin = ParseHostPort(options.admin_address);
      admin.has_value() && admin_port >= 0) {
    lines.push_back("admin on " + Address(admin->host, admin_port) +
                    ", HTTP and gRPC");
  }
  return lines;
}

LogLine FaultLine(const DeviceInfo& device, const absl::Status& fault) {
  return {LogLevel::kError,
          absl::StrCat("device ", DeviceString(device),
                       " is out of service: ", fault.message()),
          {{"device", DeviceString(device)},
           {"code", absl::StatusCodeToString(fault.code())}}};
}

}  // namespace attnd::server
