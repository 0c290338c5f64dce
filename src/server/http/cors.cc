// Preflights and the headers of answers to other origins (cors.h).
#include "server/http/cors.h"

#include <algorithm>

#include "server/http/request_head.h"

namespace kipp::http {

Cors::Cors(std::vector<std::string> origins)
    : any_(std::find(origins.begin(), origins.end(), "*") != origins.end()), origins_(std::move(origins)) {}

bool Cors::allows(std::string_view origin) const {
  return any_ || std::find(origins_.begin(), origins_.end(), origin) != origins_.end();
}

void Cors::add_headers(const std::vector<Header>& request, std::vector<Header>& out) const {
  if (origins_.empty()) {
    return;
  }
  if (!any_) {  // caches must not give one origin's answer to another, so also where the origin is not allowed or
                // absent
    out.push_back({"Vary", "Origin"});
  }
  const std::string* origin = find_header(request, "origin");
  if (origin != nullptr && allows(*origin)) {
    out.push_back({"Access-Control-Allow-Origin", any_ ? "*" : *origin});
    out.push_back({"Access-Control-Expose-Headers", "X-Request-Id, Retry-After"});
  }
}

Response Cors::preflight(const std::vector<Header>& request) const {
  constexpr const char* kMethods = "GET, HEAD, POST, OPTIONS";
  Response response{.status = 204, .headers = {{"Allow", kMethods}}, .body = "", .content_type = ""};
  const std::string* origin = find_header(request, "origin");
  const std::string* method = find_header(request, "access-control-request-method");
  if (origin != nullptr && method != nullptr && allows(*origin)) {
    response.headers.push_back({"Access-Control-Allow-Methods", kMethods});
    // Client libraries send headers of their own (x-stainless-…). None is dangerous here: there are no cookies.
    if (const std::string* headers = find_header(request, "access-control-request-headers")) {
      response.headers.push_back({"Access-Control-Allow-Headers", *headers});
    }
    response.headers.push_back({"Access-Control-Max-Age", "600"});
  }
  return response;
}

}  // namespace kipp::http
