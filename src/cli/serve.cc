// `kipp serve`: the model behind an HTTP interface, for many users at once, until a signal ends it.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "build_info.h"
#include "cli/commands.h"
#include "cli/gate_records.h"
#include "cli/input.h"
#include "cli/model_flags.h"
#include "cli/number_flag.h"
#include "cli/output.h"
#include "cli/sampling_flags.h"
#include "cli/text_flag.h"
#include "kipp/version.h"
#include "server/api/api_server.h"
#include "server/http/http_server.h"
#include "server/service/generation_service.h"

namespace kipp::cli {
namespace {

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
  bool no_prefix_cache = false;
  bool lenient = false;
};

constexpr double kShareOnDevice = 0.9;  // of what weights and workspace leave: nobody else uses the GPU
constexpr std::chrono::milliseconds kSameSignal{300};
constexpr double kShareOnHost = 0.25;  // the system keeps the file's pages in the rest

Result<std::vector<std::string>> all_keys(const ServeFlags& flags) {
  std::vector<std::string> keys = flags.api_keys;
  if (flags.api_key_file.empty()) return keys;
  KIPP_ASSIGN(const std::string text, read_file(flags.api_key_file));
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) keys.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return keys;
}

Result<std::unique_ptr<Model>> open_served(const ServeFlags& flags, const std::filesystem::path& path) {
  ModelOptions options = model_options(flags.model);
  options.num_blocks = flags.num_blocks;
  options.kv_share = flags.model.backend == "cuda" ? kShareOnDevice : kShareOnHost;
  options.max_sequences = flags.max_sequences;
  return open_with_progress(path, std::move(options));
}

openai::Props props_of(const ServeFlags& flags, Model& model, const ModelFile& file) {
  const ArtifactInfo& info = model.info();
  openai::Props props{.build = {.version = kVersion, .commit = kBuildCommit, .compiler = kBuildCompiler},
                      .model = file.path().filename().string(),
                      .checkpoint = std::string(info.checkpoint->id),
                      .revision = info.source_revision,
                      .scheme = std::string(scheme_name(info.scheme)),
                      .artifact_sha256 = file.header_sha256(),
                      .synthetic = info.synthetic,
                      .backend = model.backend().report().backend,
                      .max_sequences = flags.max_sequences};
  for (const auto& [kernel, count] : model.backend().report().kernels) props.kernels.emplace_back(kernel, kernel);
  for (const GateRecord& record : records_of_artifact(file.header_sha256())) {
    props.gates.push_back({.gate = fmt::format("{} ({})", record.backend, record.phases),
                           .status = std::string(record.verdict),
                           .record = record_text(record)});
  }
  return props;
}

api::ApiOptions api_options(const ServeFlags& flags, Model& model, const ModelFile& file) {
  const ArtifactInfo& info = model.info();
  api::ApiOptions options;
  options.defaults.sampling = recorded_sampling(info.sampling);
  options.defaults.models = flags.names;
  if (options.defaults.models.empty()) options.defaults.models = {std::string(info.checkpoint->id)};
  options.defaults.variant = info.checkpoint->variant;
  options.defaults.num_tokens = info.num_tokens();
  options.defaults.context = model.context();
  options.defaults.lenient = flags.lenient;
  options.props = props_of(flags, model, file);
  options.system_fingerprint = fmt::format("kipp-{}-{}-{}", kVersion, kBuildCommit, file.header_sha256().substr(0, 12));
  options.created = std::time(nullptr);
  return options;
}

http::Options http_options(const ServeFlags& flags, std::vector<std::string> keys) {
  http::Options options;
  options.host = flags.unix_socket.empty() ? flags.host : "";
  options.port = flags.port;
  options.unix_socket = flags.unix_socket;
  options.tls_certificate = flags.tls_certificate;
  options.tls_key = flags.tls_key;
  options.max_connections = static_cast<size_t>(flags.max_connections);
  options.cors_origins = flags.cors_origins;
  options.api_keys = std::move(keys);
  return options;
}

// Takes the signals from the beginning on: before the model is there the first one ends the process, then it asks for
// an orderly end, and the second one does not wait for it.
class EndSignals {
 public:
  // unix_socket: what an end at once must not leave behind; empty: nothing.
  explicit EndSignals(std::string unix_socket) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // threads inherit it
    std::thread([state = state_, signals, socket = std::move(unix_socket)] {
      watch(*state, signals, socket);
    }).detach();
  }

  // From now on an end is an orderly one. Waits for the first signal.
  void wait() {
    std::unique_lock lock(state_->mutex);
    state_->is_loaded = true;
    state_->asked.wait(lock, [this] { return state_->is_asked; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable asked;
    bool is_loaded = false;
    bool is_asked = false;
  };

  [[noreturn]] static void end_now(const std::string& unix_socket) {
    if (!unix_socket.empty()) ::unlink(unix_socket.c_str());
    std::_Exit(static_cast<int>(ExitCode::kInterrupted));
  }

  static void watch(State& state, const sigset_t& signals, const std::string& unix_socket) {
    int signal = 0;
    sigwait(&signals, &signal);
    {
      const std::lock_guard lock(state.mutex);
      if (!state.is_loaded) end_now(unix_socket);
      state.is_asked = true;
    }
    state.asked.notify_one();
    // One key press or stop command may signal a process and its group: what comes at once is one signal.
    std::this_thread::sleep_for(kSameSignal);
    const timespec now{};
    while (sigtimedwait(&signals, nullptr, &now) > 0) {
    }
    sigwait(&signals, &signal);
    end_now(unix_socket);
  }

  std::shared_ptr<State> state_ = std::make_shared<State>();  // the watching thread outlives everything
};

// Where a client finds the server.
std::string address_of(const ServeFlags& flags, uint16_t port) {
  if (!flags.unix_socket.empty()) return "unix:" + flags.unix_socket;
  const bool is_v6 = flags.host.find(':') != std::string::npos;
  const std::string host = is_v6 ? "[" + flags.host + "]" : flags.host;
  return fmt::format("{}://{}:{}", flags.tls_certificate.empty() ? "http" : "https", host, port);
}

// Model, service, routes and connections. Members end in the other order: nothing is called that is gone.
class Serving {
 public:
  Result<void> open(const ServeFlags& flags, const std::filesystem::path& path) {
    KIPP_ASSIGN(std::vector<std::string> keys, all_keys(flags));
    KIPP_ASSIGN(server_, http::Server::start(http_options(flags, std::move(keys)), [this](auto exchange) {
                  api::ApiServer* api = ready_;
                  if (api != nullptr) return api->handle(exchange);
                  exchange->respond(loading());
                }));
    KIPP_ASSIGN(const ModelFile file, ModelFile::open(path, {.allow_synthetic = flags.model.allow_synthetic}));
    KIPP_ASSIGN(model_, open_served(flags, path));
    const BatchEngineOptions engine{.prefix_cache = !flags.no_prefix_cache,
                                    .look_ahead = flags.model.backend == "cuda"};
    KIPP_ASSIGN(service_, GenerationService::start(*model_, {.engine = engine, .max_waiting = flags.max_waiting}));
    api_ = std::make_unique<api::ApiServer>(*model_, *service_, api_options(flags, *model_, file));
    ready_ = api_.get();
    KIPP_TRY(standard_output().write(address_of(flags, server_->port()) + "\n"));
    print_message(fmt::format("{} on {}, {} KV blocks of {} positions\n", path.filename().string(), flags.model.backend,
                              model_->num_free_blocks(), kBlockPositions));
    return {};
  }

  // Lets what runs finish, up to the deadline.
  void drain(int32_t seconds) {
    print_message(fmt::format("ending: up to {} s for what runs; a second signal ends it now\n", seconds));
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    server_->stop_accepting();
    const bool answered = service_->drain(deadline);
    const bool sent = server_->drain(deadline + std::chrono::seconds(1));  // so that those that were cut are told
    print_message(answered && sent ? "ended: every answer was finished\n"
                                   : "ended: answers were cut at the deadline\n");
  }

 private:
  // What every path says until the model is there.
  static http::Response loading() {
    const openai::ApiError error{
        .status = 503, .type = "server_error", .code = "loading", .message = "the model is loading"};
    return {.status = error.status, .headers = {{"Retry-After", "1"}}, .body = write_json(openai::error_json(error))};
  }

  std::atomic<api::ApiServer*> ready_ = nullptr;
  std::unique_ptr<Model> model_;
  std::unique_ptr<GenerationService> service_;
  std::unique_ptr<api::ApiServer> api_;
  std::unique_ptr<http::Server> server_;
};

Result<void> serve(const ServeFlags& flags) {
  EndSignals signals(flags.unix_socket);
  KIPP_ASSIGN(const std::filesystem::path path, artifact_path(flags.model));
  Serving serving;
  KIPP_TRY(serving.open(flags, path));
  signals.wait();
  serving.drain(flags.drain_seconds);
  return {};
}

constexpr std::string_view kExamples =
    "  kipp serve -m models/kipp-kipp-demo-bf16.gguf\n"
    "  kipp serve -m models/kipp-kipp-demo-bf16.gguf --host :: --port 8000 --api-key secret --max-sequences 16\n"
    "  kipp serve -m models/kipp-kipp-demo-bf16.gguf --unix-socket kipp.sock --name demo --name gpt-4o-mini\n";

void add_listening_flags(CLI::App& command, ServeFlags& flags) {
  command.add_option("--host", flags.host, "Address or name to listen at; :: is every address of the machine")
      ->capture_default_str();
  command.add_option("--port", flags.port, "TCP port; 0: any free one")->capture_default_str();
  command.add_option("--unix-socket", flags.unix_socket, "Listen at this socket instead")->type_name("PATH");
  command.add_option("--api-key", flags.api_keys, "Key that clients must send; may be repeated")
      ->allow_extra_args(false)
      ->envname("KIPP_API_KEY")
      ->type_name("KEY");
  command.add_option("--api-key-file", flags.api_key_file, "File of keys, one a line")->type_name("FILE");
  command.add_option("--tls-cert", flags.tls_certificate, "Certificate chain, PEM")->type_name("FILE");
  command.add_option("--tls-key", flags.tls_key, "Its private key, PEM")->type_name("FILE");
  command.add_option("--cors-origin", flags.cors_origins, "Origin whose pages may call, or *; may be repeated")
      ->allow_extra_args(false)
      ->type_name("ORIGIN");
  add_number_flag<int32_t>(command, "--max-connections", flags.max_connections, {.min = 1},
                           "Connections at a time; more are answered 503");
}

}  // namespace

void add_serve_command(CLI::App& app, ExitCode& exit_code) {
  CLI::App* command = app.add_subcommand("serve", "Serve a model over HTTP with OpenAI's interface");
  const auto flags = std::make_shared<ServeFlags>();
  add_model_flags(*command, flags->model);
  add_listening_flags(*command, *flags);
  command
      ->add_option("--name", flags->names,
                   "Name of the model for clients (default: the checkpoint's id); may be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME");
  add_number_flag<int32_t>(*command, "--max-sequences", flags->max_sequences, {.min = 1, .max = 1024},
                           "Sequences that are evaluated together");
  add_number_flag<int32_t>(*command, "--kv-blocks", flags->num_blocks, {.min = 0},
                           "KV blocks of 32 positions; 0: as memory allows");
  add_number_flag<int32_t>(*command, "--max-waiting", flags->max_waiting, {.min = 1},
                           "Requests that may wait for their first token; more are answered 429");
  add_number_flag<int32_t>(*command, "--drain-seconds", flags->drain_seconds, {.min = 0},
                           "After SIGTERM or Ctrl-C, time for what runs");
  command->add_flag("--no-prefix-cache", flags->no_prefix_cache, "Evaluate every prompt anew");
  command->add_flag("--lenient", flags->lenient, "Ignore fields of requests that Kipp does not know");
  command->footer(help_footer(kExamples));
  command->callback([flags, &exit_code] {
    const Result<void> served = serve(*flags);
    exit_code = served ? ExitCode::kOk : fail(ExitCode::kModel, served.error());
  });
}

}  // namespace kipp::cli
