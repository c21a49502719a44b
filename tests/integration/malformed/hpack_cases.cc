// Header blocks that cannot be unpacked (RFC 7541): each ends the connection,
// as the tables of both ends no longer agree.

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/integration/malformed/case.h"
#include "tests/integration/malformed/requests.h"
#include "tests/integration/malformed/tables.h"

namespace attnd::testing {
namespace {

// Literals with the name as text (6.2): indexed, not indexed, never indexed.
constexpr char kIndexed[] = "\x40";
constexpr char kNever[] = "\x10";

std::string NotIndexed() { return std::string(1, '\0'); }

// With the name from a table.
std::string NameAt(uint64_t index) { return PackedInteger(index, 6, 0x40); }
std::string HeaderAt(uint64_t index) { return PackedInteger(index, 7, 0x80); }
std::string TableSize(uint64_t size) { return PackedInteger(size, 5, 0x20); }
// A string that says it is coded by Huffman (5.2).
std::string Huffman(const std::string& bytes) {
  return PackedInteger(bytes.size(), 7, 0x80) + bytes;
}
// An integer of 7 bits at most that goes on for `bytes` bytes.
std::string Endless(uint8_t first, int bytes, char byte) {
  return absl::StrCat(std::string(1, char(first)), std::string(bytes, byte));
}

MalformedCase Bad(std::string name, std::string section, std::string block) {
  return ConnectionCase(std::move(name), absl::StrCat("HPACK ", section),
                        CallWithBlock(block), ErrorCode::kCompression);
}
// At the end of a good block.
MalformedCase AtEnd(std::string name, std::string section,
                    const std::string& bytes) {
  return Bad(std::move(name), std::move(section), GoodHeaders() + bytes);
}

void AddIndices(MalformedCases& cases) {
  const std::string many_ones = Endless(0xff, 10, '\xff') + "\x0f";
  const MalformedCase added[] = {
      AtEnd("index 0", "6.1", HeaderAt(0)),
      Bad("index 0 first", "6.1", HeaderAt(0) + GoodHeaders()),
      AtEnd("the first index of an empty table", "2.3.3", HeaderAt(62)),
      AtEnd("an index beyond the table", "2.3.3",
            kIndexed + PackedText("x") + PackedText("y") + HeaderAt(63)),
      AtEnd("an index of 2^31", "2.3.3", HeaderAt(1ull << 31)),
      AtEnd("an index of 2^32 + 2, which 32 bits take for 2", "5.1",
            HeaderAt((1ull << 32) + 2)),
      AtEnd("an index of 2^64 - 1", "5.1", HeaderAt(~0ull)),
      AtEnd("an index of more than 64 bits", "5.1", many_ones),
      AtEnd("an index with endless zeros", "5.1", Endless(0xff, 100, '\x80')),
      AtEnd("a name's index beyond the table", "2.3.3",
            NameAt(62) + PackedText("y")),
      AtEnd("a name's index beyond the table, not indexed", "2.3.3",
            PackedInteger(62, 4) + PackedText("y")),
      AtEnd("a name's index beyond the table, never indexed", "2.3.3",
            PackedInteger(62, 4, 0x10) + PackedText("y")),
      AtEnd("a name's index of 2^64 - 1", "5.1",
            NameAt(~0ull) + PackedText("y")),
      AtEnd("an entry that a smaller table has lost", "4.3",
            kIndexed + PackedText("x") + PackedText(std::string(5000, 'y')) +
                HeaderAt(62)),
  };
  cases.insert(cases.end(), std::begin(added), std::end(added));
}

// The block ends within a header.
void AddTruncated(MalformedCases& cases) {
  const MalformedCase added[] = {
      AtEnd("the end within an index", "5.1", "\xff"),
      AtEnd("the end within an index of several bytes", "5.1", "\xff\x80\x80"),
      AtEnd("the end before a name", "6.2.1", kIndexed),
      AtEnd("the end before a name, not indexed", "6.2.2", NotIndexed()),
      AtEnd("the end before a name, never indexed", "6.2.3", kNever),
      AtEnd("the end within a name's length", "5.2",
            absl::StrCat(kNever, "\x7f")),
      AtEnd("the end within a name", "5.2", absl::StrCat(kNever, "\x05x-a")),
      AtEnd("the end before a value", "5.2", kNever + PackedText("x-a")),
      AtEnd("the end before a value of a known name", "5.2", NameAt(4)),
      AtEnd("the end within a value's length", "5.2",
            absl::StrCat(kNever, PackedText("x-a"), "\x7f\x80")),
      AtEnd("the end within a value", "5.2",
            absl::StrCat(kNever, PackedText("x-a"), "\x05", "bcd")),
      AtEnd("the end within a value coded by Huffman", "5.2",
            absl::StrCat(kNever, PackedText("x-a"), "\x85\x1f")),
      AtEnd("a value of 2^31 bytes", "5.2",
            kNever + PackedText("x-a") + PackedInteger(1ull << 31, 7) + "y"),
      AtEnd("a value of 2^32 + 1 bytes, which 32 bits take for 1", "5.1",
            kNever + PackedText("x-a") + PackedInteger((1ull << 32) + 1, 7) +
                "y"),
      AtEnd("a value of 2^64 - 1 bytes", "5.1",
            kNever + PackedText("x-a") + PackedInteger(~0ull, 7) + "y"),
      AtEnd("a length of more than 64 bits", "5.1",
            kNever + PackedText("x-a") + Endless(0x7f, 12, '\xff') + "\x0f"),
      AtEnd("a length with endless zeros", "5.1",
            kNever + PackedText("x-a") + Endless(0x7f, 100, '\x80')),
      AtEnd("a name of 2^31 bytes", "5.2",
            kNever + PackedInteger(1ull << 31, 7) + "x"),
  };
  cases.insert(cases.end(), std::begin(added), std::end(added));
}

// "a" is 00011, and ones fill the last byte. 30 ones are the end of a string,
// which is never in one.
void AddHuffman(MalformedCases& cases) {
  const std::pair<const char*, std::string> codes[] = {
      {"padded by zeros", "\x18"},
      {"padded by 10 bits", "\x1f\xff"},
      {"of padding alone", "\xff"},
      {"with the end of a string inside",
       std::string("\xff\xff\xff\xfc\x1f", 5)},
      {"that is the end of a string", "\xff\xff\xff\xff"},
      {"that ends within a symbol", "\x1f\xfe"}};
  for (const auto& [name, code] : codes) {
    cases.push_back(AtEnd(absl::StrCat("a value by Huffman ", name), "5.2",
                          kNever + PackedText("x-a") + Huffman(code)));
    cases.push_back(AtEnd(absl::StrCat("a name by Huffman ", name), "5.2",
                          kNever + Huffman(code) + PackedText("y")));
  }
  // The value of a header that nobody looks at is unpacked all the same.
  cases.push_back(AtEnd("an indexed value by Huffman padded by zeros", "5.2",
                        kIndexed + PackedText("x-a") + Huffman("\x18")));
}

void AddTableSizes(MalformedCases& cases) {
  const MalformedCase added[] = {
      Bad("a table of 4097 bytes", "6.3", TableSize(4097) + GoodHeaders()),
      Bad("a table of 2^31 bytes", "6.3",
          TableSize(1ull << 31) + GoodHeaders()),
      Bad("a table of 2^32 + 1 bytes, which 32 bits take for 1", "5.1",
          TableSize((1ull << 32) + 1) + GoodHeaders()),
      Bad("a table of 2^64 - 1 bytes", "5.1", TableSize(~0ull) + GoodHeaders()),
      Bad("a table's size with endless zeros", "5.1",
          Endless(0x3f, 100, '\x80') + GoodHeaders()),
      AtEnd("a table's size after a header", "4.2", TableSize(100)),
      Bad("a table's size between headers", "4.2",
          PackedHeader(":method", "POST") + TableSize(100) +
              GoodHeaders({{":method", kNone}})),
      AtEnd("the end within a table's size", "6.3", "\x3f"),
      Bad("an entry of a table that was emptied", "4.3",
          TableSize(0) + TableSize(4096) + GoodHeaders() + HeaderAt(62)),
      Bad("an entry that is larger than its table", "4.4",
          TableSize(32) + GoodHeaders() + kIndexed + PackedText("x-a") +
              PackedText("y") + HeaderAt(62)),
  };
  cases.insert(cases.end(), std::begin(added), std::end(added));
  // Two say it all: the least that there was, and the last.
  const std::string three = TableSize(0) + TableSize(100) + TableSize(200);
  cases.push_back(Bad("three sizes of a table", "4.2", three + GoodHeaders()));
  std::string hundred;
  for (int i = 0; i < 100; ++i) hundred += TableSize(i);
  cases.push_back(
      Bad("a hundred sizes of a table", "4.2", hundred + GoodHeaders()));
}

// What is wrong is wrong in trailers, too, and behind CONTINUATION.
void AddElsewhere(MalformedCases& cases) {
  MalformedCase trailers = AtEnd("index 0 in trailers", "6.1", "");
  trailers.bytes = OpenStream() +
                   Frame(kData, 0, 1, Prefixed("").substr(0, 1)) +
                   Frame(kHeaders, kEndHeaders | kEndStream, 1, HeaderAt(0));
  cases.push_back(trailers);
  MalformedCase continued = AtEnd("index 0 in CONTINUATION", "6.1", "");
  continued.bytes = Frame(kHeaders, 0, 1, GoodHeaders()) +
                    Frame(kContinuation, kEndHeaders, 1, HeaderAt(0));
  cases.push_back(continued);
  MalformedCase halves =
      AtEnd("a string that two CONTINUATIONs lack", "5.2", "");
  halves.bytes = Frame(kHeaders, 0, 1, GoodHeaders() + kNever + "\x03x-") +
                 Frame(kContinuation, 0, 1, "a\005bc") +
                 Frame(kContinuation, kEndHeaders, 1, "d");
  cases.push_back(halves);
}

}  // namespace

MalformedCases HpackCases() {
  MalformedCases cases;
  AddIndices(cases);
  AddTruncated(cases);
  AddHuffman(cases);
  AddTableSizes(cases);
  AddElsewhere(cases);
  return cases;
}

}  // namespace attnd::testing
