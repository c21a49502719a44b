#include "client/connection_error.h"

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace attnd::client {
namespace {

// What gRPC says first when no address of a target took a connection.
constexpr absl::string_view kNoConnection =
    "failed to connect to all addresses";

// What it says when a connection ended before the server spoke HTTP/2.
bool HungUp(absl::string_view message) {
  return absl::StrContains(message, "Socket closed") ||
         absl::StrContains(message, "Connection reset by peer") ||
         absl::StrContains(message, "Broken pipe") ||
         // An alert of TLS in place of HTTP/2.
         absl::StrContains(message, "Endpoint read failed") ||
         absl::StrContains(message, "FD shutdown");
}

absl::string_view WithoutTls(absl::string_view message) {
  if (!HungUp(message)) return "";
  return "the server closed the connection at once; does it expect TLS, or "
         "take no more connections?";
}

// An alert is the server's word on what the client sent it.
absl::string_view AfterAlert(absl::string_view message) {
  if (absl::StrContains(message, "certificate required")) {
    return "the server requires a certificate of the client";
  }
  if (absl::StrContains(message, "protocol version")) {
    return "the server speaks no version of TLS from 1.2 on";
  }
  return "the server refused the TLS handshake; does it require a certificate "
         "of the client, or another one?";
}

absl::string_view WithTls(absl::string_view message, bool has_certificate) {
  if (absl::StrContains(message, "certificate verify failed")) {
    return "the server's certificate was not accepted: either no authority "
           "(CA) that the client trusts has signed it, or it is not valid at "
           "this time";
  }
  if (absl::StrContains(message, "is not in peer certificate")) {
    return "the server's certificate is for another name; connect by a name "
           "that it has, or tell the client which to expect";
  }
  if (absl::StrContains(message, "missing selected ALPN property")) {
    return "the server speaks TLS, but not HTTP/2";
  }
  if (absl::StrContains(message, "wrong version number") ||
      absl::StrContains(message, "http request")) {
    return "what answered does not speak TLS";
  }
  if (absl::StrContains(message, "unsupported protocol")) {
    return "the server speaks no version of TLS from 1.2 on";
  }
  if (absl::StrContains(message, " alert ")) return AfterAlert(message);
  // With TLS 1.3 a client is done before the server looks at its certificate,
  // and gRPC does not tell whether it was.
  if (HungUp(message)) {
    return has_certificate
               ? "the server closed the connection; does "
                 "it refuse the client's certificate, or take no more "
                 "connections?"
               : "the server closed the connection; does "
                 "it require a certificate of the client, or take no more "
                 "connections?";
  }
  return "";
}

absl::Status WithMessage(const absl::Status& status,
                         absl::string_view message) {
  absl::Status other(status.code(), message);
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& bytes) {
    other.SetPayload(url, bytes);
  });
  return other;
}

}  // namespace

absl::Status WithNote(const absl::Status& status, absl::string_view note) {
  return WithMessage(status, absl::StrCat(status.message(), "; ", note));
}

absl::Status ExplainConnectionError(absl::Status status, ConnectionKind kind) {
  if (!absl::IsUnavailable(status) ||
      !absl::StartsWith(status.message(), kNoConnection)) {
    return status;
  }
  // To gRPC a handshake that it knows nothing of is a connection that ended.
  if (!kind.failure.empty() && HungUp(status.message())) {
    status =
        WithMessage(status, absl::StrCat(status.message(), ": ", kind.failure));
  }
  const absl::string_view text =
      kind.tls ? WithTls(status.message(), kind.has_certificate)
               : WithoutTls(status.message());
  if (text.empty()) return status;
  return WithMessage(status, absl::StrCat(text, " (", status.message(), ")"));
}

}  // namespace attnd::client
