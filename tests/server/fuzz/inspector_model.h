#ifndef ATTND_TESTS_SERVER_FUZZ_INSPECTOR_MODEL_H_
#define ATTND_TESTS_SERVER_FUZZ_INSPECTOR_MODEL_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/http2/inspector.h"
#include "tests/server/fuzz/inspector_script.h"

namespace attnd::server::http2::testing {

// What an inspector may have let through, by RFC 9113 and by counting: written
// apart from it, and slower, as it keeps all bytes of a frame.
class InspectorModel {
 public:
  // A new connection.
  void Start(const InspectorOptions& options);

  // What an inspector has passed. INTERNAL: it should not have.
  absl::Status Take(const Event& event);
  // Those of the client that have begun.
  int64_t frames() const { return client_.frames; }

 private:
  struct End {
    std::string bytes;  // of the frame that is not whole yet
    bool has_begun = false;
    int64_t frames = 0;
  };

  template <typename Begin, typename Whole>
  absl::Status Split(End& end, absl::string_view bytes, Begin begin,
                     Whole whole);
  absl::Status ClientBegins(const Frame& frame);
  absl::Status ClientSent(const Frame& frame, absl::string_view payload);
  void ServerBegins(const Frame& frame);
  void ServerSent(const Frame& frame);
  double Seconds() const;

  InspectorOptions options_;
  absl::Time start_, now_;
  size_t preface_ = 0;
  End client_, server_;
  uint32_t last_ = 0;
  // Of streams that are open: whether the client has ended its side.
  std::map<uint32_t, bool> open_;
  int64_t owed_ = 0;
  bool has_acknowledged_ = false;
  uint32_t block_ = 0;  // the stream whose headers go on
  int64_t block_frames_ = 0;
  int64_t settings_ = 0, pings_ = 0, earned_ = 0;
};

}  // namespace attnd::server::http2::testing

#endif  // ATTND_TESTS_SERVER_FUZZ_INSPECTOR_MODEL_H_
