// Which pages of other origins may use the server from a browser (the CORS protocol of the Fetch standard).
#pragma once

#include <string>
#include <vector>

#include "server/http/http_server.h"

namespace kipp::http {

class Cors {
 public:
  // Exact origins; "*" among them allows every one.
  explicit Cors(std::vector<std::string> origins);

  // Adds to `out` what every answer to a request with these headers carries.
  void add_headers(const std::vector<Header>& request, std::vector<Header>& out) const;
  // The answer to OPTIONS: a preflight from an origin that is not allowed gets no permission, which ends it.
  Response preflight(const std::vector<Header>& request) const;

 private:
  bool allows(std::string_view origin) const;

  bool any_ = false;
  std::vector<std::string> origins_;
};

}  // namespace kipp::http
