#include "tests/proto/mutate.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "proto/wire/wire_format.h"

namespace attnd::wire::testing {
namespace {

// One field as bytes: a length-delimited one's length is written anew.
struct Field {
  Tag tag;
  uint64_t value = 0;  // varint
  std::string body;    // fixed and length-delimited
};

// The fields of `bytes` as far as they can be read.
std::vector<Field> Parse(absl::string_view bytes) {
  std::vector<Field> fields;
  Reader reader(absl::MakeConstSpan(&bytes, 1));
  while (reader.left() > 0) {
    Field field;
    int64_t length = 0;
    if (!reader.ReadTag(field.tag)) break;
    if (field.tag.type == WireType::kVarint) {
      if (!reader.ReadVarint(field.value)) break;
    } else if (field.tag.type == WireType::kBytes) {
      if (!reader.ReadLength(length)) break;
    } else if (field.tag.type == WireType::kFixed32) {
      length = 4;
    } else if (field.tag.type == WireType::kFixed64) {
      length = 8;
    }
    if (length > reader.left()) break;
    field.body.resize(length);
    reader.CopyTo(field.body.data(), length);
    fields.push_back(std::move(field));
  }
  return fields;
}

std::string Write(std::mt19937_64& random, const std::vector<Field>& fields,
                  bool lie) {
  std::string out;
  for (const Field& field : fields) {
    AppendTag(field.tag, out);
    if (field.tag.type == WireType::kVarint) {
      AppendVarint(field.value, out);
      // The same value in more bytes.
      if (lie && random() % 8 == 0) {
        out.back() = static_cast<char>(out.back() | 0x80);
        out.append(random() % 10, '\x80');
        out += '\0';
      }
    } else if (field.tag.type == WireType::kBytes) {
      uint64_t length = field.body.size();
      if (lie && random() % 4 == 0) length = random() >> (random() % 64);
      AppendVarint(length, out);
    }
    out += field.body;
  }
  return out;
}

int RandomNumber(std::mt19937_64& random) {
  switch (random() % 8) {
    case 0:
      return static_cast<int>(random() % (1 << 29));
    case 1:
      return (1 << 29) - 1;
    case 2:
      return 0;
    default:
      return static_cast<int>(1 + random() % 20);
  }
}

void FlipBytes(std::mt19937_64& random, std::string& bytes) {
  for (int n = 1 + random() % 3; n > 0; --n) {
    const size_t at = bytes.empty() ? 0 : random() % bytes.size();
    switch (bytes.empty() ? 2 : random() % 4) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
        break;
      case 1:
        bytes.resize(at);
        break;
      case 2:
        bytes.insert(at, 1, static_cast<char>(random()));
        break;
      default:
        bytes.erase(at, 1 + random() % 4);
    }
  }
}

std::string MutateFields(std::mt19937_64& random, absl::string_view bytes,
                         absl::string_view other, int depth);

void MutateOne(std::mt19937_64& random, absl::string_view other, int depth,
               std::vector<Field>& fields) {
  if (fields.empty()) fields.emplace_back().tag.number = RandomNumber(random);
  const size_t at = random() % fields.size();
  Field& field = fields[at];
  switch (random() % 10) {
    case 0:
      fields.erase(fields.begin() + at);
      break;
    case 1:
      fields.push_back(Field(field));
      break;
    case 2:
      std::shuffle(fields.begin(), fields.end(), random);
      break;
    case 3:
      field.tag.number = RandomNumber(random);
      break;
    case 4:
      field.tag.type = static_cast<WireType>(random() % 8);
      break;
    case 5:
      field.value = random() >> (random() % 64);
      FlipBytes(random, field.body);
      break;
    case 6:
      field.body = std::string(field.body.size() / 2 + random() % 40, '\x0a');
      break;
    case 7: {
      std::vector<Field> from = Parse(other);
      if (!from.empty()) fields.push_back(from[random() % from.size()]);
      break;
    }
    default:
      if (depth < 4) {
        field.body = MutateFields(random, field.body, other, depth + 1);
      }
  }
}

std::string MutateFields(std::mt19937_64& random, absl::string_view bytes,
                         absl::string_view other, int depth) {
  std::vector<Field> fields = Parse(bytes);
  for (int n = 1 + random() % 2; n > 0; --n) {
    MutateOne(random, other, depth, fields);
  }
  return Write(random, fields, /*lie=*/random() % 4 == 0);
}

}  // namespace

std::string Mutate(std::mt19937_64& random, absl::string_view bytes,
                   absl::string_view other) {
  std::string mutated = random() % 8 == 0
                            ? std::string(bytes)
                            : MutateFields(random, bytes, other, 0);
  if (random() % 4 == 0) FlipBytes(random, mutated);
  return mutated;
}

}  // namespace attnd::wire::testing
