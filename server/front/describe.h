#ifndef ATTND_SERVER_FRONT_DESCRIBE_H_
#define ATTND_SERVER_FRONT_DESCRIBE_H_

// What a server says of itself, to clients and to whoever starts it. No gRPC
// in here.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "attn/v1/attention.pb.h"
#include "base/log_line.h"
#include "kernels/backend.h"
#include "server/config/options.h"

namespace attnd::server {

// What it was built with, for people.
std::string DescribeBuild(absl::string_view grpc_version);

// What tells this server from any other, and from itself before a restart.
std::string NewInstanceId();

// Which devices are in service is for the caller to say. `options` are those in
// effect: no 0 that stands for something else.
attn::v1::GetServerInfoResponse MakeServerInfo(
    const std::string& instance_id, const ServerOptions& options,
    const std::vector<std::unique_ptr<Backend>>& backends);

// One line each: what it runs on, its limits, where it listens; ports below 0
// stand for none. `options` likewise.
std::vector<std::string> DescribeServer(
    const ServerOptions& options,
    const std::vector<std::unique_ptr<Backend>>& backends, int port,
    int metrics_port, int admin_port);

// One line: which device is out of service from now on, and why.
LogLine FaultLine(const DeviceInfo& device, const absl::Status& fault);

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_DESCRIBE_H_
