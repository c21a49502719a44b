#ifndef ATTND_SERVER_FRONT_KNOWN_REQUESTS_H_
#define ATTND_SERVER_FRONT_KNOWN_REQUESTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "kernels/attention.h"
#include "kernels/request.h"
#include "server/front/region_fields.h"
#include "server/work/work.h"

namespace attnd::server {

// Requests that came more than once lately, by the bytes of their messages, so
// that they need not be read again: a caller whose tensors stay in regions asks
// for the same over and over, and reading that takes a quarter of the server's
// time before the kernel begins. What the message says is all that is kept;
// whether the regions that it names are there is for each call to find out. For
// one thread.
class KnownRequests {
 public:
  struct Entry {
    std::shared_ptr<const Request> request;
    Priority priority = Priority::kNormal;
    RegionSlices slices;
  };

  // Null: not known. Valid until Add is called.
  const Entry* Find(Op op, absl::string_view message) const;
  // That message has been read, and Find did not know it. Long ones are not
  // kept, nor one that has not come before.
  void Add(Op op, absl::string_view message, const Entry& entry);

  static constexpr size_t kLongest = 1024;
  static constexpr size_t kMost = 16;  // that are kept

 private:
  struct Kept {
    uint64_t hash = 0;
    Op op = Op::kForward;
    std::string message;
    std::vector<std::string> ids;  // the entry's slices point to them
    Entry entry;
  };

  static uint64_t HashOf(Op op, absl::string_view message);

  std::array<Kept, kMost> kept_;
  size_t next_kept_ = 0;  // the oldest, whose place the next one takes
  // Of messages that came once.
  std::array<uint64_t, 4 * kMost> once_{};
  size_t next_once_ = 0;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_KNOWN_REQUESTS_H_
