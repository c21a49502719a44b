#ifndef ATTND_TESTS_TEMP_FOLDER_H_
#define ATTND_TESTS_TEMP_FOLDER_H_

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace attnd::testing {

// A fresh folder, removed with what is in it.
class TempFolder {
 public:
  TempFolder() {
    std::string path = std::filesystem::temp_directory_path() / "attnd.XXXXXX";
    if (mkdtemp(path.data()) == nullptr) std::abort();
    path_ = path;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_TEMP_FOLDER_H_
