#ifndef ATTND_SERVER_WORK_PRIORITY_H_
#define ATTND_SERVER_WORK_PRIORITY_H_

#include <cstdint>

namespace attnd::server {

enum class Priority : uint8_t { kLow, kNormal, kHigh };  // in order

}  // namespace attnd::server

#endif  // ATTND_SERVER_WORK_PRIORITY_H_
