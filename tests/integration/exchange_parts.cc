#include "tests/integration/exchange_parts.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace attnd::testing {

namespace pb = ::attn::v1;

pb::ExchangeRequest Part(const std::string& text) {
  pb::ExchangeRequest part;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &part));
  return part;
}

std::string Header() {
  std::string tensors;
  for (const char* name : {"q", "k", "v"}) {
    absl::StrAppend(&tensors, name,
                    " { dtype: DATA_TYPE_F32 shape: [1, 512, 1, 64] "
                    "streamed {} } ");
  }
  return absl::StrCat("header { forward { ", tensors, "} chunk_bytes: ", kChunk,
                      " }");
}

std::string BackwardHeader() {
  const auto tensor = [](absl::string_view name, absl::string_view shape,
                         int elements) {
    return absl::StrCat(name, " { dtype: DATA_TYPE_F32 shape: [", shape,
                        "] data: '", std::string(elements * 4, 'a'), "' } ");
  };
  std::string tensors;
  for (const char* name : {"q", "d_o"}) {
    tensors += tensor(name, "1, 1, 1, 64", 64);
  }
  for (const char* name : {"lse", "delta"})
    tensors += tensor(name, "1, 1, 1", 1);
  for (const char* name : {"k", "v"}) {
    tensors += tensor(name, "1, 512, 1, 64", 512 * 64);
  }
  return absl::StrCat(
      "header { backward { ", tensors,
      "dk { streamed {} } dv { streamed {} } } chunk_bytes: ", kChunk, " }");
}

std::string Chunk(int tensor, int64_t index, char byte) {
  return absl::StrCat("chunk { tensor: ", tensor, " offset: ", index * kChunk,
                      " data: '", std::string(kChunk, byte), "' }");
}

std::string Describe(const pb::Missing& missing) {
  std::string text;
  for (const auto& range : missing.ranges()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", range.tensor(), ": ",
                    range.offset() / kChunk, " to ",
                    (range.offset() + range.bytes()) / kChunk);
  }
  return text;
}

}  // namespace attnd::testing
