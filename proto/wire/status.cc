#include "proto/wire/status.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/types/span.h"
#include "base/field_error.h"
#include "proto/wire/wire_format.h"

namespace attnd::wire {
namespace {

constexpr absl::string_view kBadRequestUrl =
    "type.googleapis.com/google.rpc.BadRequest";
constexpr absl::string_view kRetryInfoUrl =
    "type.googleapis.com/google.rpc.RetryInfo";
constexpr absl::string_view kErrorInfoUrl =
    "type.googleapis.com/google.rpc.ErrorInfo";
constexpr absl::string_view kRequestInfoUrl =
    "type.googleapis.com/google.rpc.RequestInfo";
constexpr absl::string_view kDomain = "attnd";
// What google.protobuf.Duration holds: 10,000 years.
constexpr int64_t kMaxSeconds = 315'576'000'000;

// Calls use(number, varint, bytes) for the varint and length-delimited fields
// of one message and skips fixed ones. False when `message` is malformed or
// `use` returns false.
template <typename Use>
bool ForEachField(absl::string_view message, Use use) {
  Reader reader(absl::MakeConstSpan(&message, 1));
  while (reader.left() > 0) {
    Tag tag;
    if (!reader.ReadTag(tag)) return false;
    uint64_t value = 0;
    int64_t length = 0;
    switch (tag.type) {
      case WireType::kVarint:
        if (!reader.ReadVarint(value)) return false;
        break;
      case WireType::kBytes:
        if (!reader.ReadLength(length)) return false;
        break;
      case WireType::kFixed32:
      case WireType::kFixed64:
        length = tag.type == WireType::kFixed32 ? 4 : 8;
        if (length > reader.left()) return false;
        reader.Skip(length);
        continue;
      default:
        return false;
    }
    const absl::string_view bytes =
        message.substr(message.size() - reader.left(), length);
    reader.Skip(length);
    if (!use(tag, value, bytes)) return false;
  }
  return true;
}

bool Is(Tag tag, int number, WireType type) {
  return tag.number == number && tag.type == type;
}

std::string Text(absl::string_view bytes) { return std::string(bytes); }

// Appends one violation to the bytes of a BadRequest.
void AppendViolation(absl::string_view field, absl::string_view description,
                     absl::Status& status) {
  // BadRequest { repeated FieldViolation field_violations = 1 },
  // FieldViolation { string field = 1; string description = 2 }.
  std::string violation;
  AppendField(1, field, violation);
  AppendField(2, description, violation);
  std::string bad_request;
  AppendField(1, violation, bad_request);
  absl::Cord payload = status.GetPayload(kBadRequestUrl).value_or(absl::Cord());
  payload.Append(bad_request);
  status.SetPayload(kBadRequestUrl, payload);
}

// `status`, whose field is a BadRequest's if it is a FieldError of base's.
absl::Status WithBadRequest(absl::Status status) {
  const std::optional<std::string> field = ErrorField(status);
  if (!field) return status;
  status.ErasePayload(kFieldUrl);
  AppendViolation(*field, status.message().substr(field->size() + 2), status);
  return status;
}

}  // namespace

absl::Status FieldError(absl::string_view field,
                        absl::string_view description) {
  return WithBadRequest(attnd::FieldError(field, description));
}

absl::Status UnknownFieldError(absl::string_view path, absl::string_view type,
                               int number) {
  absl::Status status = absl::UnimplementedError(
      absl::StrCat("unknown field ", number, " in ",
                   path.empty() ? "the message" : path, " (", type, ")"));
  AddFieldViolation(absl::StrCat(path, path.empty() ? "" : ".", number),
                    "unknown field", status);
  return status;
}

void AddFieldViolation(absl::string_view field, absl::string_view description,
                       absl::Status& status) {
  status = WithBadRequest(std::move(status));
  AppendViolation(field, description, status);
}

std::vector<FieldViolation> FieldViolations(const absl::Status& status) {
  std::vector<FieldViolation> violations;
  const auto payload = WithBadRequest(status).GetPayload(kBadRequestUrl);
  if (!payload) return violations;
  const std::string bytes(*payload);
  ForEachField(bytes, [&](Tag tag, uint64_t, absl::string_view body) {
    if (!Is(tag, 1, WireType::kBytes)) return true;
    FieldViolation violation;
    const bool ok =
        ForEachField(body, [&](Tag part, uint64_t, absl::string_view text) {
          if (Is(part, 1, WireType::kBytes)) violation.field = Text(text);
          if (Is(part, 2, WireType::kBytes)) violation.description = Text(text);
          return true;
        });
    if (ok) violations.push_back(std::move(violation));
    return ok;
  });
  return violations;
}

absl::Status WithRetryInfo(absl::Status status, absl::Duration delay) {
  delay = std::clamp(delay, absl::ZeroDuration(), absl::Seconds(kMaxSeconds));
  absl::Duration below_second;
  const int64_t seconds =
      absl::IDivDuration(delay, absl::Seconds(1), &below_second);
  // Duration { int64 seconds = 1; int32 nanos = 2 } in RetryInfo {
  // Duration retry_delay = 1 }.
  std::string duration;
  AppendTag({1, WireType::kVarint}, duration);
  AppendVarint(seconds, duration);
  AppendTag({2, WireType::kVarint}, duration);
  AppendVarint(absl::ToInt64Nanoseconds(below_second), duration);
  std::string retry_info;
  AppendField(1, duration, retry_info);
  status.SetPayload(kRetryInfoUrl, absl::Cord(retry_info));
  return status;
}

std::optional<absl::Duration> RetryDelay(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryInfoUrl);
  if (!payload) return std::nullopt;
  const std::string bytes(*payload);
  int64_t seconds = 0, nanos = 0;
  const bool ok =
      ForEachField(bytes, [&](Tag tag, uint64_t, absl::string_view body) {
        if (!Is(tag, 1, WireType::kBytes)) return true;
        return ForEachField(body, [&](Tag part, uint64_t n, absl::string_view) {
          if (Is(part, 1, WireType::kVarint)) seconds = n;
          if (Is(part, 2, WireType::kVarint)) nanos = static_cast<int32_t>(n);
          return true;
        });
      });
  if (!ok || seconds < 0 || seconds > kMaxSeconds || nanos < 0 ||
      nanos >= 1'000'000'000) {
    return std::nullopt;
  }
  return absl::Seconds(seconds) + absl::Nanoseconds(nanos);
}

absl::Status WithReason(absl::Status status, absl::string_view reason) {
  // ErrorInfo { string reason = 1; string domain = 2 }.
  std::string error_info;
  AppendField(1, reason, error_info);
  AppendField(2, kDomain, error_info);
  status.SetPayload(kErrorInfoUrl, absl::Cord(error_info));
  return status;
}

std::string Reason(const absl::Status& status) {
  const auto payload = status.GetPayload(kErrorInfoUrl);
  if (!payload) return "";
  const std::string bytes(*payload);
  std::string reason, domain;
  const bool ok =
      ForEachField(bytes, [&](Tag tag, uint64_t, absl::string_view text) {
        if (Is(tag, 1, WireType::kBytes)) reason = Text(text);
        if (Is(tag, 2, WireType::kBytes)) domain = Text(text);
        return true;
      });
  return ok && domain == kDomain ? reason : "";
}

absl::Status WithRequestId(absl::Status status, absl::string_view id) {
  std::string request_info;  // RequestInfo { string request_id = 1 }
  AppendField(1, id, request_info);
  status.SetPayload(kRequestInfoUrl, absl::Cord(request_info));
  return status;
}

std::string RequestId(const absl::Status& status) {
  const auto payload = status.GetPayload(kRequestInfoUrl);
  if (!payload) return "";
  const std::string bytes(*payload);
  std::string id;
  const bool ok =
      ForEachField(bytes, [&](Tag tag, uint64_t, absl::string_view text) {
        if (Is(tag, 1, WireType::kBytes)) id = Text(text);
        return true;
      });
  return ok ? id : "";
}

std::string EncodeStatus(const absl::Status& status) {
  std::string out;
  if (status.ok()) return out;
  AppendTag({1, WireType::kVarint}, out);
  AppendVarint(status.raw_code(), out);
  AppendField(2, status.message(), out);
  std::map<std::string, std::string> payloads;
  WithBadRequest(status).ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) {
        payloads.emplace(Text(url), std::string(payload));
      });
  for (const auto& [url, payload] : payloads) {
    std::string any;  // Any { string type_url = 1; bytes value = 2 }
    AppendField(1, url, any);
    AppendField(2, payload, any);
    AppendField(3, any, out);
  }
  return out;
}

absl::Status DecodeStatus(absl::string_view bytes, absl::Status& status) {
  int code = 0;
  absl::string_view message;
  std::vector<std::pair<absl::string_view, absl::string_view>> details;
  const auto any = [&details](absl::string_view body) {
    auto& detail = details.emplace_back();  // type URL, payload
    return ForEachField(body, [&](Tag tag, uint64_t, absl::string_view text) {
      if (Is(tag, 1, WireType::kBytes)) detail.first = text;
      if (Is(tag, 2, WireType::kBytes)) detail.second = text;
      return true;
    });
  };
  const bool ok =
      ForEachField(bytes, [&](Tag tag, uint64_t value, absl::string_view body) {
        if (Is(tag, 1, WireType::kVarint)) code = static_cast<int>(value);
        if (Is(tag, 2, WireType::kBytes)) message = body;
        return Is(tag, 3, WireType::kBytes) ? any(body) : true;
      });
  if (!ok) return absl::InvalidArgumentError("not a google.rpc.Status");
  status = absl::Status(static_cast<absl::StatusCode>(code), message);
  for (const auto& [url, payload] : details) {
    status.SetPayload(url, absl::Cord(payload));
  }
  return absl::OkStatus();
}

std::string Echo(absl::string_view text) {
  constexpr size_t kLimit = 64;
  // Escaping never shortens, so what lies further cannot matter.
  std::string escaped = absl::CHexEscape(text.substr(0, kLimit + 1));
  if (escaped.size() > kLimit) {
    escaped.resize(kLimit - 3);
    escaped += "...";
  }
  return escaped;
}

}  // namespace attnd::wire
