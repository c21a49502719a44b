#ifndef ATTND_TESTS_SERVER_TOKEN_TESTING_H_
#define ATTND_TESTS_SERVER_TOKEN_TESTING_H_

// Token files for tests.

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/identity/token_set.h"

namespace attnd::server {

// As `echo sha256:$(printf %s TOKEN | sha256sum)` has it.
inline std::string HashWord(absl::string_view token) {
  const TokenHash hash = HashOf(token);
  return absl::StrCat(
      "sha256:", absl::BytesToHexString(absl::string_view(
                     reinterpret_cast<const char*>(hash.data()), hash.size())));
}

// A file in a folder of its own, both removed at the end.
class TempTokenFile {
 public:
  TempTokenFile() {
    std::string folder = "/tmp/tokens.XXXXXX";
    folder_ = mkdtemp(folder.data());
  }
  ~TempTokenFile() {
    Remove();
    rmdir(folder_.c_str());
  }
  TempTokenFile(const TempTokenFile&) = delete;
  TempTokenFile& operator=(const TempTokenFile&) = delete;

  std::string path() const { return folder_ + "/tokens"; }
  // In place of what there was, as a whole.
  void Write(absl::string_view text) const {
    const std::string next = folder_ + "/next";
    std::ofstream(next) << text;
    chmod(next.c_str(), 0600);
    std::rename(next.c_str(), path().c_str());
  }
  // Behind what there is.
  void Append(absl::string_view text) const {
    std::ofstream(path(), std::ios::app) << text;
  }
  void Remove() const { unlink(path().c_str()); }

 private:
  std::string folder_;
};

}  // namespace attnd::server

#endif  // ATTND_TESTS_SERVER_TOKEN_TESTING_H_
