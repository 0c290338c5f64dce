// Status lines and headers as text, and error bodies (response.h).
#include "server/http/response.h"

#include <fmt/format.h>

#include <array>
#include <ctime>
#include <iterator>

#include "base/json.h"

namespace kipp::http {
namespace {

void append_header(std::string& out, std::string_view name, std::string_view value) {
  out += name;
  out += ": ";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7F ? ' ' : c;
  }
  out += "\r\n";
}

// The only format that may be sent; strftime's names of days and months would depend on the locale.
std::string http_date(std::time_t now) {
  constexpr std::array<std::string_view, 7> kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm t{};
  ::gmtime_r(&now, &t);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[static_cast<size_t>(t.tm_wday)], t.tm_mday,
                     kMonths[static_cast<size_t>(t.tm_mon)], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
}

std::string_view error_type(int status) {
  if (status == 429) {
    return "rate_limit_error";
  }
  return status < 500 ? "invalid_request_error" : "server_error";
}

}  // namespace

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 301: return "Moved Permanently";
    case 302: return "Found";
    case 304: return "Not Modified";
    case 307: return "Temporary Redirect";
    case 308: return "Permanent Redirect";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 406: return "Not Acceptable";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return "";
  }
}

bool may_have_body(int status) {
  return status != 204 && status != 304;
}

Response error_response(const Refusal& refusal) {
  Json error;
  error.set("message", Json::string(refusal.message));
  error.set("type", Json::string(std::string(error_type(refusal.status))));
  error.set("param", Json());
  error.set("code", Json::string(refusal.code));
  Json body;
  body.set("error", std::move(error));
  return {.status = refusal.status, .headers = {}, .body = write_json(body)};
}

std::string serialize_head(const Response& response, const HeadOptions& options) {
  std::string out;
  out.reserve(320);
  fmt::format_to(std::back_inserter(out), "HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status));
  append_header(out, "Date", http_date(std::time(nullptr)));
  if (may_have_body(response.status)) {
    if (!response.content_type.empty()) {
      append_header(out, "Content-Type", response.content_type);
    }
    if (options.framing == Framing::kLength) {
      append_header(out, "Content-Length", fmt::format("{}", response.body.size()));
    } else if (options.framing == Framing::kChunked) {
      append_header(out, "Transfer-Encoding", "chunked");
    }
  }
  if (!options.keep_alive) {
    append_header(out, "Connection", "close");
  } else if (options.minor_version == 0) {
    append_header(out, "Connection", "keep-alive");
  }
  for (const std::vector<Header>* headers : {&response.headers, &options.more}) {
    for (const Header& header : *headers) {
      append_header(out, header.name, header.value);
    }
  }
  out += "\r\n";
  return out;
}

}  // namespace kipp::http
