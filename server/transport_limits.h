#ifndef ATTND_SERVER_TRANSPORT_LIMITS_H_
#define ATTND_SERVER_TRANSPORT_LIMITS_H_

namespace attnd::server {

// The largest HTTP/2 frame that clients may send. Without a number from the
// server they would send frames of 16 KiB, each of which costs as much as a
// large one. Attnd reads them whole (server/program/frame_reads.h), so each
// connection may hold one.
inline constexpr int kMaxFrameBytes = 2 << 20;

}  // namespace attnd::server

#endif  // ATTND_SERVER_TRANSPORT_LIMITS_H_
