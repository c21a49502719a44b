#ifndef ATTND_CLIENT_WHOLE_FILE_H_
#define ATTND_CLIENT_WHOLE_FILE_H_

// Files that are written whole or not at all.

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace attnd::client {

// Writes `pieces`, one after another, to what `path` names:
//
// - A regular file, or nothing yet: under another name beside it first, which
//   then takes its place. When anything fails, as on a full disk, that is
//   removed and `path` is as it was. Permissions and links to it stay. Only
//   where its folder takes no file it is written in place.
// - A device, a FIFO, this process's standard output: as it is.
//
// Errors are what the system said, after the path.
absl::Status WriteWholeFile(const std::string& path,
                            absl::Span<const absl::string_view> pieces);

// Whether WriteWholeFile could begin; changes nothing.
absl::Status CheckWritable(const std::string& path);

// Whether `path` is a name for this process's standard output.
bool IsStandardOutput(absl::string_view path);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_WHOLE_FILE_H_
