#ifndef ATTND_PROTO_WIRE_METADATA_H_
#define ATTND_PROTO_WIRE_METADATA_H_

namespace attnd::wire {

// What a client may say in a call's metadata.

// The bytes of the call's message, decimal. A server that knows them can keep
// room for the message before it reads it; without them it must keep as much as
// the largest takes. They must not be too few; a few too many do no harm.
inline constexpr char kRequestBytesKey[] = "attnd-request-bytes";

}  // namespace attnd::wire

#endif  // ATTND_PROTO_WIRE_METADATA_H_
