#ifndef ATTND_SERVER_WORK_RUN_RECORD_H_
#define ATTND_SERVER_WORK_RUN_RECORD_H_

#include <string>

#include "kernels/attention.h"
#include "server/work/work.h"

namespace attnd::server {

// How a device ran a request: what is kept of it when its results have gone.
struct RunRecord {
  Op op = Op::kForward;
  Phases phases;
  int batch_requests = 0;
  double flops = 0;
  std::string device;  // see DeviceString
};

inline RunRecord RunRecordOf(const Request& request, const WorkResult& result) {
  return {request.spec().op, result.phases, result.batch_requests,
          request.flops(), result.device};
}

}  // namespace attnd::server

#endif  // ATTND_SERVER_WORK_RUN_RECORD_H_
