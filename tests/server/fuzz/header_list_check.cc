#include "tests/server/fuzz/header_list_check.h"

#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/http2/header_list.h"
#include "tests/server/fuzz/hpack_decoder.h"

namespace attnd::server::http2::testing {
namespace {

constexpr std::array<uint32_t, 4> kTables = {4096, 256, 100, 0};

Bytes BytesOf(absl::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// The next block of `input`, which loses it.
absl::string_view TakeBlock(absl::string_view& input) {
  const size_t size = static_cast<uint8_t>(input[0]);
  const absl::string_view block = input.substr(1, size);
  input.remove_prefix(1 + block.size());
  return block;
}

std::string RandomText(std::minstd_rand& random) {
  std::string text(random() % 4 == 0 ? random() % 60 : random() % 9, '\0');
  const bool is_text = random() % 4 != 0;
  for (char& c : text) {
    c = static_cast<char>(is_text ? 'a' + random() % 26 : random());
  }
  return text;
}

}  // namespace

absl::Status CheckHeaderList(absl::string_view input, bool* accepted) {
  if (accepted != nullptr) *accepted = false;
  if (input.empty()) return absl::OkStatus();
  const uint32_t table = kTables[static_cast<uint8_t>(input[0]) % 4];
  input.remove_prefix(1);
  HeaderListSizer sizer(table);
  HpackDecoder decoder(table);
  while (!input.empty()) {
    const absl::string_view block = TakeBlock(input);
    size_t expected = 0;
    const bool is_good = decoder.Decode(block, &expected);
    const std::optional<uint64_t> size = sizer.Add(BytesOf(block));
    if (size.has_value() != is_good || (is_good && *size != expected)) {
      return absl::InternalError(
          absl::StrCat(size.has_value() ? *size : -1, " bytes, not ",
                       is_good ? absl::StrCat(expected) : "malformed"));
    }
    // So are all that follow.
    if (!is_good) return absl::OkStatus();
  }
  if (accepted != nullptr) *accepted = true;
  return absl::OkStatus();
}

std::string RandomField(std::minstd_rand& random) {
  std::string field;
  // Of the static table, the other, and a few that there are not.
  const uint64_t index = random() % 2 == 0 ? 1 + random() % 61 : random() % 75;
  switch (random() % 4) {
    case 0:
      AppendInteger(index, 7, 0x80, field);
      return field;
    case 1:
      AppendInteger(random() % 2 == 0 ? index : 0, 6, 0x40, field);
      break;
    default:
      AppendInteger(random() % 2 == 0 ? index : 0, 4,
                    random() % 2 == 0 ? 0x10 : 0, field);
  }
  const bool has_name =
      (static_cast<uint8_t>(field[0]) &
       (static_cast<uint8_t>(field[0]) >= 0x40 ? 63 : 15)) == 0;
  if (has_name) AppendString(RandomText(random), random() % 2 == 0, field);
  AppendString(RandomText(random), random() % 2 == 0, field);
  return field;
}

std::string FreshHeaderList(std::minstd_rand& random) {
  std::string input(1, static_cast<char>(random()));
  for (int blocks = random() % 4; blocks >= 0; --blocks) {
    std::string block;
    if (random() % 4 == 0) AppendInteger(random() % 300, 5, 0x20, block);
    for (int fields = random() % 5; fields > 0; --fields) {
      block += RandomField(random);
    }
    if (block.size() > 255) continue;
    input.push_back(static_cast<char>(block.size()));
    input += block;
  }
  return input;
}

std::string MutateHeaderList(std::minstd_rand& random,
                             absl::string_view input) {
  if (input.empty()) return FreshHeaderList(random);
  const char first = input[0];
  input.remove_prefix(1);
  std::vector<std::string> blocks;
  while (!input.empty()) blocks.emplace_back(TakeBlock(input));
  if (blocks.empty()) blocks.emplace_back();
  std::string& block = blocks[random() % blocks.size()];
  switch (random() % 6) {
    case 0:
      block = RandomField(random) + block;
      break;
    case 1:
      block += RandomField(random);
      break;
    case 2:
      if (!block.empty()) {
        block[random() % block.size()] = static_cast<char>(random());
      }
      break;
    case 3:
      blocks.push_back(block);
      break;
    case 4:
      std::swap(block, blocks.back());
      blocks.pop_back();
      break;
    default: {
      std::string limit;
      AppendInteger(random() % 5000, 5, 0x20, limit);
      block = limit + block;
    }
  }
  std::string mutated(1, first);
  for (const std::string& one : blocks) {
    mutated.push_back(static_cast<char>(std::min<size_t>(one.size(), 255)));
    mutated += one.substr(0, 255);
  }
  return mutated;
}

}  // namespace attnd::server::http2::testing
