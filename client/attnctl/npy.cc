#include "client/attnctl/npy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/attnctl/npy_header.h"
#include "client/whole_file.h"
#include "proto/wire/status.h"

namespace attnd::client {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicBytes = 6;
// Longer headers are not of arrays that this reader takes.
constexpr uint32_t kMaxHeaderBytes = 64 << 10;

// A file that is read, and closed. Opening it does not wait for another end,
// as a FIFO's would.
class File {
 public:
  explicit File(const std::string& path)
      : path_(path),
        fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }

  // What the system said last.
  absl::Status Error() const { return absl::ErrnoToStatus(errno, path_); }
  absl::Status Invalid(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", what));
  }

  absl::Status Read(void* data, size_t bytes) {
    char* next = static_cast<char*>(data);
    while (bytes > 0) {
      const ssize_t n = read(fd_, next, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Error();
      if (n == 0) return Invalid("truncated");
      next += n;
      bytes -= n;
    }
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  const int fd_;
};

absl::StatusOr<NpyType> TypeOf(const File& file, const std::string& descr) {
  if (descr == "<f4") return NpyType::kF32;
  if (descr == "<f2") return NpyType::kF16;
  if (descr == "<i8") return NpyType::kI64;
  if (descr == "<u2" || descr == "<V2" || descr == "|V2") {
    return NpyType::kBits16;
  }
  std::string hint;
  if (descr == "<f8") hint = " (float64): save it with astype('float32')";
  if (!descr.empty() && descr[0] == '>') hint = " (big-endian)";
  return file.Invalid(absl::StrCat(
      "type '", wire::Echo(descr), "'", hint,
      "; float32, float16, int64 or 16 bits of bfloat16 are needed"));
}

// The header's text, with the file left at the first element.
absl::StatusOr<std::string> ReadHeaderText(File& file, int64_t file_bytes,
                                           int64_t& data_offset) {
  char start[8];
  if (file_bytes < static_cast<int64_t>(sizeof(start))) {
    return file.Invalid("not a .npy file");
  }
  absl::Status status = file.Read(start, sizeof(start));
  if (!status.ok()) return status;
  if (std::memcmp(start, kMagic, kMagicBytes) != 0) {
    return file.Invalid("not a .npy file");
  }
  const int major = static_cast<unsigned char>(start[6]);
  if (major < 1 || major > 3) {
    return file.Invalid(absl::StrCat("version ", major, " of the format"));
  }
  unsigned char length[4] = {0, 0, 0, 0};
  const size_t length_bytes = major == 1 ? 2 : 4;
  status = file.Read(length, length_bytes);
  if (!status.ok()) return status;
  const uint32_t header_bytes = length[0] | length[1] << 8 | length[2] << 16 |
                                static_cast<uint32_t>(length[3]) << 24;
  data_offset = static_cast<int64_t>(sizeof(start) + length_bytes) +
                static_cast<int64_t>(header_bytes);
  if (header_bytes > kMaxHeaderBytes) {
    return file.Invalid(absl::StrCat("a header of ", header_bytes, " bytes"));
  }
  if (data_offset > file_bytes) return file.Invalid("truncated in its header");
  std::string text(header_bytes, '\0');
  status = file.Read(text.data(), text.size());
  if (!status.ok()) return status;
  return text;
}

// product(shape) * element_bytes, or -1 when it exceeds `limit`.
int64_t DataBytes(const std::vector<int64_t>& shape, int64_t element_bytes,
                  int64_t limit) {
  for (const int64_t extent : shape) {
    if (extent == 0) return 0;
  }
  int64_t bytes = element_bytes;
  for (const int64_t extent : shape) {
    if (bytes > limit / extent) return -1;
    bytes *= extent;
  }
  return bytes <= limit ? bytes : -1;
}

}  // namespace

int64_t SizeOf(NpyType type) {
  switch (type) {
    case NpyType::kF32:
      return 4;
    case NpyType::kI64:
      return 8;
    default:
      return 2;
  }
}

absl::string_view Name(NpyType type) {
  switch (type) {
    case NpyType::kF32:
      return "float32";
    case NpyType::kF16:
      return "float16";
    case NpyType::kI64:
      return "int64";
    default:
      return "16 bits";
  }
}

absl::StatusOr<NpyArray> ReadNpy(const std::string& path) {
  File file(path);
  struct stat info;
  if (!file.is_open() || fstat(file.fd(), &info) != 0) return file.Error();
  if (!S_ISREG(info.st_mode)) {
    return file.Invalid(
        "not a regular file: write what a pipe or a device gives to a file "
        "first");
  }
  int64_t data_offset = 0;
  const absl::StatusOr<std::string> text =
      ReadHeaderText(file, info.st_size, data_offset);
  if (!text.ok()) return text.status();
  absl::StatusOr<NpyHeader> header = ParseNpyHeader(*text);
  if (!header.ok()) return file.Invalid(header.status().message());
  const absl::StatusOr<NpyType> type = TypeOf(file, header->descr);
  if (!type.ok()) return type.status();
  if (header->shape.empty()) return file.Invalid("0-dimensional");
  if (header->fortran_order && header->shape.size() > 1) {
    return file.Invalid(
        "Fortran-ordered: save it with np.ascontiguousarray(...)");
  }
  const int64_t held = info.st_size - data_offset;
  const int64_t bytes = DataBytes(header->shape, SizeOf(*type), held);
  if (bytes != held) {
    return file.Invalid(
        absl::StrCat(bytes < 0 ? "truncated: " : "too long: ", held,
                     " bytes of data do not make a ", Name(*type), " array [",
                     absl::StrJoin(header->shape, ", "), "]"));
  }
  NpyArray array{*type, std::move(header->shape), {}};
  array.data.resize(bytes);
  if (absl::Status status = file.Read(array.data.data(), array.data.size());
      !status.ok()) {
    return status;
  }
  return array;
}

absl::Status WriteNpy(const std::string& path, NpyType type,
                      const std::vector<int64_t>& shape, const void* data) {
  const char* descr = type == NpyType::kF32   ? "<f4"
                      : type == NpyType::kF16 ? "<f2"
                      : type == NpyType::kI64 ? "<i8"
                                              : "<u2";
  std::string header = absl::StrCat(
      "{'descr': '", descr, "', 'fortran_order': False, 'shape': (",
      absl::StrJoin(shape, ", "), shape.size() == 1 ? ",), }" : "), }");
  // Version 1.0: two bytes of length; the data starts at a multiple of 64.
  const size_t start = kMagicBytes + 2 + 2;
  header.append((64 - (start + header.size() + 1) % 64) % 64, ' ');
  header.push_back('\n');
  std::string prefix(kMagic, kMagicBytes);
  prefix += {'\x01', '\x00', static_cast<char>(header.size() & 0xff),
             static_cast<char>(header.size() >> 8)};
  prefix += header;

  int64_t bytes = SizeOf(type);
  for (const int64_t extent : shape) bytes *= extent;
  return WriteWholeFile(
      path, {prefix, absl::string_view(static_cast<const char*>(data),
                                       static_cast<size_t>(bytes))});
}

}  // namespace attnd::client
