// Declares the flags with their help texts.
#include "cli/serve_flags.h"

#include <map>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/input.h"
#include "cli/number_flag.h"
#include "cli/settings.h"

namespace kipp::cli {
namespace {

void add_listening_flags(CLI::App& command, ServeFlags& flags) {
  command.add_option("--host", flags.host, "Address or name to listen at; :: is every address of the machine")
      ->capture_default_str();
  add_number_flag<uint16_t>(command, "--port", flags.port, {.min = 0}, "TCP port (8080); 0: any free one");
  command.add_option("--unix-socket", flags.unix_socket, "Listen at this socket instead")->type_name("PATH");
  command.add_option("--tls-cert", flags.tls_certificate, "Certificate chain, PEM")->type_name("FILE");
  command.add_option("--tls-key", flags.tls_key, "Its private key, PEM")->type_name("FILE");
  command.add_option("--cors-origin", flags.cors_origins, "Origin whose pages may call, or *; may be repeated")
      ->allow_extra_args(false)
      ->type_name("ORIGIN");
  add_number_flag<int32_t>(command, "--max-connections", flags.max_connections, {.min = 1},
                           "Connections at a time; more are answered 503");
}

void add_key_flags(CLI::App& command, ServeFlags& flags) {
  command.add_option("--api-key", flags.api_keys, "Key that clients must send; may be repeated")
      ->allow_extra_args(false)
      ->type_name("KEY");
  command
      .add_option("--api-key-file", flags.api_key_file, "File of keys, one a line: KEY [name=NAME] [max-requests=N]")
      ->type_name("FILE");
  add_number_flag<int32_t>(command, "--max-requests-per-key", flags.max_requests_per_key, {.min = 0},
                           "Requests of one key that may generate at a time; more are answered 429; 0: any number");
}

void add_log_flags(CLI::App& command, ServeFlags& flags) {
  const std::map<std::string, log::Format> formats = {{"text", log::Format::kText}, {"json", log::Format::kJson}};
  command.add_option("--log-format", flags.log_format, "Lines on standard error: for people (text) or programs (json)")
      ->transform(CLI::CheckedTransformer(formats).description(""))
      ->type_name("text|json");
  const std::map<std::string, log::Level> levels = {{"debug", log::Level::kDebug},
                                                    {"info", log::Level::kInfo},
                                                    {"warning", log::Level::kWarning},
                                                    {"error", log::Level::kError}};
  command.add_option("--log-level", flags.log_level, "The least of what is logged (info)")
      ->transform(CLI::CheckedTransformer(levels).description(""))
      ->type_name("debug|info|warning|error");
  command.add_flag("--log-prompts", flags.log_prompts, "Also log what clients ask, which is left out otherwise");
  command.add_flag("--open-metrics", flags.open_metrics, "GET /metrics needs no key");
}

void add_engine_flags(CLI::App& command, ServeFlags& flags) {
  command
      .add_option("--name", flags.names,
                  "Name of the model for clients (default: the checkpoint's id); may be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME");
  add_number_flag<int32_t>(command, "--max-sequences", flags.max_sequences, {.min = 1, .max = 1024},
                           "Sequences that are evaluated together");
  add_number_flag<int32_t>(command, "--kv-blocks", flags.num_blocks, {.min = 0},
                           "KV blocks of 32 positions; 0: as memory allows");
  add_number_flag<int32_t>(command, "--max-waiting", flags.max_waiting, {.min = 1},
                           "Answers (choices) that may wait for their first token; more get 429");
  add_number_flag<int32_t>(command, "--drain-seconds", flags.drain_seconds, {.min = 0},
                           "After SIGTERM or Ctrl-C, time for what runs");
  command.add_flag("--no-prefix-cache", flags.no_prefix_cache, "Evaluate every prompt anew");
  command.add_flag("--lenient", flags.lenient, "Ignore fields of requests that Kipp does not know");
}

}  // namespace

void add_serve_flags(CLI::App& command, ServeFlags& flags) {
  add_model_flags(command, flags.model);
  add_listening_flags(command, flags);
  add_key_flags(command, flags);
  add_engine_flags(command, flags);
  add_log_flags(command, flags);
  add_settings(command);
}

Result<std::vector<ApiKey>> all_keys(const ServeFlags& flags) {
  std::vector<ApiKey> keys;
  keys.reserve(flags.api_keys.size());
  for (const std::string& key : flags.api_keys) keys.push_back({.key = key, .name = name_of_key(key)});
  if (!flags.api_key_file.empty()) {
    KIPP_ASSIGN(const std::string text, read_file(flags.api_key_file));
    auto more = parse_key_file(text);
    if (!more) {
      return make_error(more.error().code, fmt::format("{}: {}", flags.api_key_file, more.error().message));
    }
    for (ApiKey& key : *more) keys.push_back(std::move(key));
  }
  if (keys.empty() && flags.max_requests_per_key > 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--max-requests-per-key: there are no keys; give --api-key or --api-key-file");
  }
  for (ApiKey& key : keys) {
    if (key.max_requests == 0) key.max_requests = flags.max_requests_per_key;
  }
  return keys;
}

}  // namespace kipp::cli
