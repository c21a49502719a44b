#ifndef ATTND_TESTS_BENCH_SERVICE_SECTION_H_
#define ATTND_TESTS_BENCH_SERVICE_SECTION_H_

// What service_bench's sections measure, and the bars that they are held to.

#include <memory>
#include <string>
#include <vector>

#include "tests/bench/require.h"
#include "tests/bench/table.h"
#include "tests/integration/process.h"

namespace attnd::bench {

struct Section {
  const char* name;   // of --only
  const char* title;  // what it shows
  void (*run)(Table& table);
};

// Memory and counters of an attnd under 20,000 mixed requests.
void Soak(Table& table);
// Requests near the memory limit.
void Large(Table& table);
// Whether Soak would notice a leak.
void Leak(Table& table);
// Who gets how much of a device that all want.
void Fairness(Table& table);
// Small requests beside ones of two seconds.
void Small(Table& table);
// Others' calls beside a request that takes minutes.
void Slices(Table& table);
// From a cancel to a lane that is free.
void Cancel(Table& table);
// How soon a server is gone after SIGTERM.
void Drain(Table& table);
// How soon calls to a server that is stopped end.
void Stopped(Table& table);
// Connections beyond descriptors and limits.
void ManyConnections(Table& table);
// What attnload's open loop shows of a stall.
void Stall(Table& table);
// Prometheus' scrapes beside peers that are slow.
void Scrape(Table& table);

std::unique_ptr<testing::ServerProcess> StartAttnd(
    const std::vector<std::string>& flags, int log = -1);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_SERVICE_SECTION_H_
