#ifndef ATTND_BASE_ERRNO_OF_CONNECT_H_
#define ATTND_BASE_ERRNO_OF_CONNECT_H_

namespace attnd {

// Keeps gRPC from taking a connection that is under way for one that failed. To
// be called before the first channel is made; does something once in a process.
//
// gRPC 1.51 locks an absl::Mutex between connect() and its look at errno. When
// a thread comes to wait for such a mutex behind another one, Abseil asks, once
// in a process, how fast the processor's clock ticks, in a file under /sys that
// few systems have. That leaves ENOENT in errno, and calls over the channel end
// with UNAVAILABLE, "No such file or directory". This has Abseil ask before.
void KeepErrnoOfConnect();

}  // namespace attnd

#endif  // ATTND_BASE_ERRNO_OF_CONNECT_H_
