#include "server/work/device_name.h"

#include "absl/strings/str_cat.h"

namespace attnd::server {

std::string DeviceLabel(const DeviceInfo& device) {
  return absl::StrCat(device.kind, ":", device.index);
}

std::string DeviceString(const DeviceInfo& device) {
  return absl::StrCat(DeviceLabel(device), " ", device.name);
}

}  // namespace attnd::server
