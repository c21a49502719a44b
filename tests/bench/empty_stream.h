#ifndef ATTND_TESTS_BENCH_EMPTY_STREAM_H_
#define ATTND_TESTS_BENCH_EMPTY_STREAM_H_

namespace attnd::bench {

// Serves kEmptyStreamMethod on a free port until the parent is done: an empty
// message for an empty message, through the kind of handler that attnd's own
// methods have, to gRPC's server a stream whose message is read when told to.
void ServeEmptyStream();

inline constexpr char kEmptyStreamMethod[] =
    "/attn.v1.AttentionService/Forward";

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_EMPTY_STREAM_H_
