#ifndef ATTND_TESTS_BENCH_SECURITY_INSPECTOR_COST_H_
#define ATTND_TESTS_BENCH_SECURITY_INSPECTOR_COST_H_

namespace attnd::bench {

// What the inspector of HTTP/2 takes by itself, without sockets, in ns.
struct InspectorCost {
  double call;     // a small call, its answer included
  double mib_in;   // a MiB that comes in frames of 16 KiB, as most clients send
  double mib_out;  // a MiB that goes in such frames
};

// The median of many, on this thread. Ends the program where the inspector
// takes what is good for hostile.
InspectorCost MeasureInspector();

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_SECURITY_INSPECTOR_COST_H_
