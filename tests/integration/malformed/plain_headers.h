#ifndef ATTND_TESTS_INTEGRATION_MALFORMED_PLAIN_HEADERS_H_
#define ATTND_TESTS_INTEGRATION_MALFORMED_PLAIN_HEADERS_H_

#include <map>
#include <optional>
#include <string>

namespace attnd::testing {

// The headers of a block that was packed (RFC 7541) without a dynamic table, as
// gRPC packs them for a client whose table has size 0. What is coded by Huffman
// is "" here, and so is the name of all that the static table names but
// :status. Nothing if the block cannot be read without more than that.
std::optional<std::map<std::string, std::string>> ReadPlainHeaders(
    const std::string& block);

}  // namespace attnd::testing

#endif  // ATTND_TESTS_INTEGRATION_MALFORMED_PLAIN_HEADERS_H_
