#ifndef ATTND_SERVER_IDENTITY_TOKEN_FILE_H_
#define ATTND_SERVER_IDENTITY_TOKEN_FILE_H_

// The file of token_lines.h, and how to see that it has changed.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "server/identity/token_set.h"

namespace attnd::server {

inline constexpr int64_t kMostTokenFileBytes = int64_t{1} << 20;

// Which file a path led to, and in which state: whatever differs has changed.
struct FileStamp {
  bool exists = false;
  uint64_t device = 0, inode = 0;
  int64_t bytes = 0;
  int64_t modified_ns = 0, changed_ns = 0;  // since 1970

  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

FileStamp StampOf(const std::string& path);

struct TokenFile {
  TokenSet tokens;
  FileStamp stamp;
};

// Reads `path`, a symbolic link or not. Errors name it, and the line if one is
// at fault, and repeat nothing of what it holds:
//   INVALID_ARGUMENT    ParseTokens' errors; too large; not a regular file
//   PERMISSION_DENIED   others than its owner and its group may write it
//   ABORTED             it changed meanwhile
//   any other           the system's, of opening or reading it
absl::StatusOr<TokenFile> ReadTokenFile(const std::string& path);

}  // namespace attnd::server

#endif  // ATTND_SERVER_IDENTITY_TOKEN_FILE_H_
