#ifndef ATTND_TESTS_SERVICE_FUZZ_EXCHANGE_H_
#define ATTND_TESTS_SERVICE_FUZZ_EXCHANGE_H_

// A problem's way through a server: forward, its answer judged, then backward
// from that answer.

#include <functional>

#include "absl/status/status.h"
#include "attnd/client.h"
#include "tests/service_fuzz/judge.h"
#include "tests/service_fuzz/problem.h"

namespace attnd::fuzz {

// Outputs as they are asked for, all NaN.
struct ForwardBuffers {
  Buffer o, lse;
};
ForwardBuffers MakeForwardBuffers(const FuzzProblem& problem);
Gradients MakeGradients(const FuzzProblem& problem);

// What a client of a forward gives to backward: O or delta, LSE. What lies past
// a sequence's length is NaN.
Upstream MakeUpstream(const FuzzProblem& problem,
                      const ForwardBuffers& forward);

struct Outcome {
  enum { kRight, kWrong, kUnimplemented } what = kRight;
  Verdict verdict;  // of kWrong
};
// Thread-safe.
Outcome Exchange(client::Client& client, const FuzzProblem& problem);

}  // namespace attnd::fuzz

#endif  // ATTND_TESTS_SERVICE_FUZZ_EXCHANGE_H_
