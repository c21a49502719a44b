#ifndef ATTND_SERVER_WORK_DEVICE_NAME_H_
#define ATTND_SERVER_WORK_DEVICE_NAME_H_

// How a device is called wherever it is named: in responses, errors, metrics
// and the log.

#include <string>

#include "kernels/backend.h"

namespace attnd::server {

// "cpu:0": no other of the server's devices has it.
std::string DeviceLabel(const DeviceInfo& device);
// "cpu:0 AMD EPYC": the label, and what the device is.
std::string DeviceString(const DeviceInfo& device);

}  // namespace attnd::server

#endif  // ATTND_SERVER_WORK_DEVICE_NAME_H_
