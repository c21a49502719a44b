#include "tests/server/fuzz/certificate_check.h"

#include <openssl/err.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/tls/certificate_name.h"
#include "server/tls/credentials.h"

namespace attnd::server::tls::testing {
namespace {

// An element of DER: where it begins, and its content.
struct Element {
  size_t begin = 0, content = 0, end = 0;
  int parent = -1;  // among the elements; -1: none
};

uint8_t At(absl::string_view der, size_t at) {
  return static_cast<uint8_t>(der[at]);
}

// All elements of der[begin, end), each before those within it. Content that is
// not made of whole elements is a leaf's.
void FindElements(absl::string_view der, size_t begin, size_t end, int parent,
                  std::vector<Element>& all) {
  const size_t before = all.size();
  while (begin < end) {
    Element element{.begin = begin, .parent = parent};
    size_t at = begin + 1;
    size_t length = at < end ? At(der, at++) : end;
    if (length > 0x80) {
      size_t bytes = length - 0x80;
      for (length = 0; bytes > 0 && at < end && length <= end; --bytes) {
        length = length << 8 | At(der, at++);
      }
    }
    if (at > end || length > end - at) return all.resize(before);
    element.content = at;
    element.end = begin = at + length;
    const uint8_t tag = At(der, element.begin);
    const auto index = static_cast<int>(all.size());
    all.push_back(element);
    // Extensions are in strings of bytes.
    if ((tag & 0x20) != 0 || tag == 4) {
      FindElements(der, element.content, element.end, index, all);
    }
  }
}

std::string Encoded(uint8_t tag, absl::string_view content) {
  std::string der(1, static_cast<char>(tag));
  const size_t size = content.size();
  if (size < 0x80) {
    der.push_back(static_cast<char>(size));
  } else {
    absl::StrAppend(&der, size < 0x100 ? "\x81" : "\x82");
    if (size >= 0x100) der.push_back(static_cast<char>(size >> 8));
    der.push_back(static_cast<char>(size));
  }
  return absl::StrCat(der, content);
}

// `der` with one element in place of `all[index]`, and the lengths of those
// around it as they must be.
std::string Replaced(absl::string_view der, const std::vector<Element>& all,
                     int index, std::string by) {
  const Element& element = all[index];
  if (element.parent < 0) {
    return absl::StrCat(der.substr(0, element.begin), by,
                        der.substr(element.end));
  }
  const Element& around = all[element.parent];
  const std::string content =
      absl::StrCat(der.substr(around.content, element.begin - around.content),
                   by, der.substr(element.end, around.end - element.end));
  return Replaced(der, all, element.parent,
                  Encoded(At(der, around.begin), content));
}

std::string RandomContent(std::minstd_rand& random) {
  constexpr size_t kSizes[] = {0, 1, 3, 8, 20, 255, 256, 257};
  std::string content(kSizes[random() % std::size(kSizes)], '\0');
  const bool is_text = random() % 4 != 0;
  for (char& c : content) {
    c = static_cast<char>(is_text ? '!' + random() % 94 : random());
  }
  return content;
}

absl::Status CheckName(const std::string& name) {
  const bool can_be_shown = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  if (name.empty() || name.size() > 256 || !can_be_shown) {
    return absl::InternalError(
        absl::StrCat("a name: ", absl::CHexEscape(name)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCertificate(absl::string_view der, bool* is_certificate) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(der.data());
  const X509Ptr certificate(
      d2i_X509(nullptr, &bytes, static_cast<long>(der.size())));  // NOLINT
  ERR_clear_error();
  if (is_certificate != nullptr) *is_certificate = certificate != nullptr;
  if (certificate == nullptr) return absl::OkStatus();
  const std::string name = NameOf(certificate.get());
  if (ERR_peek_error() != 0) return absl::InternalError("an error is left");
  return CheckName(name);
}

absl::Status CheckCredentials(absl::string_view certificate,
                              absl::string_view key,
                              absl::string_view client_ca, bool* accepted) {
  CredentialFiles files{.certificate = "c", .key = "k"};
  if (!client_ca.empty()) files.client_ca = "a";
  const auto credentials = Credentials::Create(
      {std::string(certificate), std::string(key), std::string(client_ca)},
      files);
  if (accepted != nullptr) *accepted = credentials.ok();
  if (ERR_peek_error() != 0) return absl::InternalError("an error is left");
  if (credentials.ok()) {
    if ((*credentials)->asks_clients() == client_ca.empty()) {
      return absl::InternalError("it asks clients otherwise");
    }
    return absl::OkStatus();
  }
  const absl::string_view says = credentials.status().message();
  if (!absl::IsInvalidArgument(credentials.status()) ||
      !absl::StartsWith(says, "--tls_") || says.size() > 200 ||
      absl::StrContains(says, "-----") || absl::StrContains(says, "\n")) {
    return absl::InternalError(credentials.status().ToString());
  }
  return absl::OkStatus();
}

std::string MutateDer(std::minstd_rand& random, absl::string_view der) {
  std::vector<Element> all;
  FindElements(der, 0, der.size(), -1, all);
  if (all.empty()) return absl::StrCat(der, RandomContent(random));
  const auto index = static_cast<int>(random() % all.size());
  const Element& element = all[index];
  const uint8_t tag = At(der, element.begin);
  std::string whole(der.substr(element.begin, element.end - element.begin));
  std::string content(
      der.substr(element.content, element.end - element.content));
  switch (random() % 6) {
    case 0:
      return Replaced(der, all, index, "");
    case 1:
      return Replaced(der, all, index, absl::StrCat(whole, whole));
    case 2:
      return Replaced(der, all, index, Encoded(tag, RandomContent(random)));
    case 3:
      return Replaced(der, all, index,
                      Encoded(static_cast<uint8_t>(random()), content));
    case 4: {
      const Element& other = all[random() % all.size()];
      return Replaced(
          der, all, index,
          std::string(der.substr(other.begin, other.end - other.begin)));
    }
    default:
      if (content.empty()) return Replaced(der, all, index, whole + whole);
      content[random() % content.size()] = static_cast<char>(random());
      return Replaced(der, all, index, Encoded(tag, content));
  }
}

std::string ToPem(absl::string_view der) {
  std::string pem = "-----BEGIN CERTIFICATE-----\n";
  const std::string text = absl::Base64Escape(der);
  for (size_t at = 0; at < text.size(); at += 64) {
    absl::StrAppend(&pem, text.substr(at, 64), "\n");
  }
  return pem + "-----END CERTIFICATE-----\n";
}

}  // namespace attnd::server::tls::testing
