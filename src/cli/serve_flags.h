// The flags of `kipp serve`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/key_file.h"
#include "cli/model_flags.h"
#include "kipp/error.h"
#include "server/log/log_line.h"

namespace CLI {
class App;
}

namespace kipp::cli {

struct ServeFlags {
  ModelFlags model;
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  std::string unix_socket;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::string tls_certificate;
  std::string tls_key;
  std::vector<std::string> cors_origins;
  std::vector<std::string> names;
  int32_t max_sequences = 64;
  int32_t num_blocks = 0;
  int32_t max_waiting = 256;
  int32_t max_connections = 4096;
  int32_t drain_seconds = 30;
  int32_t max_requests_per_key = 0;
  log::Format log_format = log::Format::kText;
  log::Level log_level = log::Level::kInfo;
  bool log_prompts = false;
  bool open_metrics = false;
  bool no_prefix_cache = false;
  bool lenient = false;
};

// All of them, with their variables and --config (settings.h).
void add_serve_flags(CLI::App& command, ServeFlags& flags);

// The keys of the flags and of the file, each with its limit. Errors: those of read_file and parse_key_file; a limit
// without keys.
Result<std::vector<ApiKey>> all_keys(const ServeFlags& flags);

}  // namespace kipp::cli
