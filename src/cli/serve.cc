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
#include "cli/model_flags.h"
#include "cli/output.h"
#include "cli/sampling_flags.h"
#include "cli/serve_flags.h"
#include "cli/settings.h"
#include "kipp/version.h"
#include "server/api/api_server.h"
#include "server/http/http_server.h"
#include "server/log/logger.h"
#include "server/service/generation_service.h"

namespace kipp::cli {
namespace {

constexpr double kShareOnDevice = 0.9;  // of what weights and workspace leave: nobody else uses the GPU
constexpr std::chrono::milliseconds kSameSignal{300};
constexpr double kShareOnHost = 0.25;  // the system keeps the file's pages in the rest

Json text(std::string value) {
  return Json::string(std::move(value));
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

http::Options http_options(const ServeFlags& flags, const std::vector<ApiKey>& keys, log::Logger& logger) {
  http::Options options;
  options.host = flags.unix_socket.empty() ? flags.host : "";
  options.port = flags.port;
  options.unix_socket = flags.unix_socket;
  options.tls_certificate = flags.tls_certificate;
  options.tls_key = flags.tls_key;
  options.max_connections = static_cast<size_t>(flags.max_connections);
  options.cors_origins = flags.cors_origins;
  for (const ApiKey& key : keys) options.api_keys.push_back(key.key);
  if (flags.open_metrics) options.open_paths.emplace_back("/metrics");
  options.on_refusal = [&logger](const http::RefusedRequest& refused) {
    logger.write(log::Level::kInfo, "request_refused",
                 {{"request_id", text(std::string(refused.request_id))},
                  {"peer", text(std::string(refused.peer))},
                  {"method", text(std::string(refused.method))},
                  {"path", text(std::string(refused.path))},
                  {"status", Json::number(int64_t{refused.status})},
                  {"error", text(std::string(refused.code))}});
  };
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

  // From now on an end is an orderly one: before the first client is told that the model is there.
  void expect_orderly_end() {
    const std::lock_guard lock(state_->mutex);
    state_->is_loaded = true;
  }
  // For the first signal.
  void wait() {
    std::unique_lock lock(state_->mutex);
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
  Serving(log::Logger& logger, EndSignals& signals) : logger_(logger), signals_(signals) {}

  Result<void> open(const ServeFlags& flags, const std::filesystem::path& path) {
    const auto start = std::chrono::steady_clock::now();
    KIPP_ASSIGN(const std::vector<ApiKey> keys, all_keys(flags));
    KIPP_ASSIGN(server_, http::Server::start(http_options(flags, keys, logger_), [this](auto exchange) {
                  api::ApiServer* api = ready_;
                  if (api != nullptr) return api->handle(exchange);
                  exchange->respond(loading());
                }));
    const std::string address = address_of(flags, server_->port());
    logger_.write(log::Level::kInfo, "started",
                  {{"address", text(address)}, {"version", text(kVersion)}, {"commit", text(kBuildCommit)}});
    KIPP_ASSIGN(const ModelFile file, ModelFile::open(path, {.allow_synthetic = flags.model.allow_synthetic}));
    KIPP_ASSIGN(model_, open_served(flags, path));
    const BatchEngineOptions engine{.prefix_cache = !flags.no_prefix_cache,
                                    .look_ahead = flags.model.backend == "cuda"};
    const int32_t num_blocks = model_->num_free_blocks();
    KIPP_ASSIGN(service_, GenerationService::start(*model_, {.engine = engine, .max_waiting = flags.max_waiting}));
    api::ApiOptions options = api_options(flags, *model_, file);
    for (const ApiKey& key : keys) options.keys.push_back({key.name, key.max_requests});
    options.logger = &logger_;
    options.log_prompts = flags.log_prompts;
    options.http_statistics = [this] { return server_->statistics(); };
    api_ = std::make_unique<api::ApiServer>(*model_, *service_, std::move(options));
    signals_.expect_orderly_end();
    ready_ = api_.get();
    KIPP_TRY(standard_output().write(address + "\n"));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    logger_.write(log::Level::kInfo, "model_loaded",
                  {{"model", text(path.filename().string())},
                   {"backend", text(flags.model.backend)},
                   {"kv_blocks", Json::number(int64_t{num_blocks})},
                   {"block_positions", Json::number(int64_t{kBlockPositions})},
                   {"seconds", Json::number_literal(fmt::format("{:.3f}", seconds.count()))}});
    return {};
  }

  // Lets what runs finish, up to the deadline.
  void drain(int32_t seconds) {
    logger_.write(log::Level::kInfo, "ending",
                  {{"message", text(fmt::format("up to {} s for what runs; a second signal ends it now", seconds))}});
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    server_->stop_accepting();
    const bool answered = service_->drain(deadline);
    const bool sent = server_->drain(deadline + std::chrono::seconds(1));  // so that those that were cut are told
    logger_.write(
        log::Level::kInfo, "ended",
        {{"message", text(answered && sent ? "every answer was finished" : "answers were cut at the deadline")}});
  }

 private:
  // What every path says until the model is there.
  static http::Response loading() {
    const openai::ApiError error{
        .status = 503, .type = "server_error", .code = "loading", .message = "the model is loading"};
    return {.status = error.status, .headers = {{"Retry-After", "1"}}, .body = write_json(openai::error_json(error))};
  }

  log::Logger& logger_;
  EndSignals& signals_;
  std::atomic<api::ApiServer*> ready_ = nullptr;
  std::unique_ptr<Model> model_;
  std::unique_ptr<GenerationService> service_;
  std::unique_ptr<api::ApiServer> api_;
  std::unique_ptr<http::Server> server_;
};

Result<void> serve(const ServeFlags& flags, log::Logger& logger) {
  EndSignals signals(flags.unix_socket);
  KIPP_ASSIGN(const std::filesystem::path path, artifact_path(flags.model));
  Serving serving(logger, signals);
  KIPP_TRY(serving.open(flags, path));
  signals.wait();
  serving.drain(flags.drain_seconds);
  return {};
}

ExitCode serve(const ServeFlags& flags) {
  log::Logger logger({.format = flags.log_format, .level = flags.log_level, .descriptor = STDERR_FILENO});
  const Result<void> served = serve(flags, logger);
  if (served) return ExitCode::kOk;
  if (flags.log_format == log::Format::kText) return fail(ExitCode::kModel, served.error());
  logger.write(log::Level::kError, "failed", {{"message", text(served.error().message)}});
  return ExitCode::kModel;
}

constexpr std::string_view kExamples =
    "  kipp serve -m models/kipp-kipp-demo-bf16.gguf\n"
    "  kipp serve -m models/kipp-kipp-demo-bf16.gguf --host :: --port 8000 --api-key secret --max-sequences 16\n"
    "  kipp serve -m models/kipp-kipp-demo-bf16.gguf --unix-socket kipp.sock --name demo --name gpt-4o-mini\n"
    "  kipp serve -m models/kipp-kipp-demo-bf16.gguf --log-format json --max-waiting 64\n";

}  // namespace

void add_serve_command(CLI::App& app, ExitCode& exit_code) {
  CLI::App* command = app.add_subcommand("serve", "Serve a model over HTTP with OpenAI's interface");
  const auto flags = std::make_shared<ServeFlags>();
  add_serve_flags(*command, *flags);
  command->footer(help_footer(kExamples));
  command->callback([command, flags, &exit_code] {
    apply_settings(*command);
    exit_code = serve(*flags);
  });
}

}  // namespace kipp::cli
