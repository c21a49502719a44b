#ifndef ATTND_BASE_DESCRIPTOR_H_
#define ATTND_BASE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace attnd {

// Owns a file descriptor; below 0 it is none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { Close(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    Close();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // The caller owns it from now on.
  int release() { return std::exchange(fd_, -1); }

 private:
  void Close() {
    if (fd_ >= 0) close(fd_);
  }

  int fd_ = -1;
};

}  // namespace attnd

#endif  // ATTND_BASE_DESCRIPTOR_H_
