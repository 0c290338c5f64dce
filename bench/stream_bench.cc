// What the server itself costs: streams over sockets of a model that draws made-up tokens and whose steps take a given
// time, which the "device" spends on its own. One JSON object a line on stdout; times are of the steps in which all
// streams decode. engine_us: CPU time of the thread that owns the model, a token; server_us: of all the server's
// threads.
//   stream_bench ARTIFACT [STEP_MICROSECONDS [STREAMS...]]
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/model_impl.h"
#include "server/api/api_server.h"
#include "server/http/http_server.h"
#include "server/service/generation_service.h"

namespace {

using namespace kipp;
using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr int32_t kMaxStreams = 256;
constexpr int32_t kContext = 2048;
constexpr int32_t kTokens = 1000;  // of each stream

[[noreturn]] void fail(std::string_view what) {
  fmt::print(stderr, "stream_bench: {}\n", what);
  std::exit(1);
}

double cpu_seconds(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Between the first and the last step in which all streams decode.
struct Measured {
  int64_t num_steps = 0;
  double wall = 0;    // seconds
  double engine = 0;  // CPU seconds of the calling thread
  double others = 0;  // CPU seconds of all threads but the clients'
};

// Steps follow one another on the device, each for the same time; tokens are all of a few thousand ids in turn.
class PacedBackend final : public Backend {
 public:
  explicit PacedBackend(microseconds step) : step_time_(step) {}

  // clients: CPU clock of the thread that reads the streams.
  void expect(size_t num_streams, clockid_t clients) {
    const std::scoped_lock lock(mutex_);
    num_streams_ = num_streams;
    clients_ = clients;
    measured_ = {};
  }
  Measured measured() const {
    const std::scoped_lock lock(mutex_);
    return measured_;
  }

  Result<MemoryPlan> plan(const ModelFile&, const Limits&) const override { return unused(); }
  Result<void> load(const ModelFile&, const Limits&, int32_t) override { return {}; }
  Result<StepId> forward(const Batch& batch) override {
    device_free_ = std::max(device_free_, Clock::now()) + step_time_;
    ends_.push_back(device_free_);
    const std::scoped_lock lock(mutex_);
    const bool all_decode = batch.spans.size() == num_streams_ && batch.tokens.size() == num_streams_;
    if (all_decode) note_step();
    return ++step_;
  }
  Result<void> sample(StepId, std::span<const SampleRow>) override { return {}; }
  Result<void> collect(StepId, std::span<RowResult> results) override {
    std::this_thread::sleep_until(ends_.front());
    ends_.pop_front();
    for (RowResult& result : results) result = {.token = {.id = 1000 + static_cast<int32_t>(num_drawn_++ % 4000)}};
    return {};
  }
  Result<void> logits(StepId, int32_t, std::span<float>) override { return unused(); }
  Result<void> evaluate_stateless(std::span<const int32_t>, const StatelessObserver&) override { return unused(); }
  Result<void> copy_blocks(std::span<const int32_t>, std::span<const int32_t>) override { return {}; }
  Result<void> read_block(int32_t, KvBlock&) const override { return unused(); }
  Result<void> write_block(int32_t, const KvBlock&) override { return unused(); }
  int32_t preferred_tokens_per_step() const override { return 2048; }
  Report report() const override { return {.backend = "paced", .kernels = {}}; }
  const OperatorTable& operators() const override {
    static constexpr OperatorTable kNothing{};
    return kNothing;
  }

 private:
  static tl::unexpected<Error> unused() { return make_error(ErrorCode::kUnsupported, "not part of a step"); }
  void note_step() {
    const Measured now{.wall = std::chrono::duration<double>(Clock::now().time_since_epoch()).count(),
                       .engine = cpu_seconds(CLOCK_THREAD_CPUTIME_ID),
                       .others = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_seconds(clients_)};
    if (measured_.num_steps++ == 0) begin_ = now;
    measured_ = {.num_steps = measured_.num_steps,
                 .wall = now.wall - begin_.wall,
                 .engine = now.engine - begin_.engine,
                 .others = now.others - begin_.others};
  }

  microseconds step_time_;
  Clock::time_point device_free_ = Clock::now();
  std::deque<Clock::time_point> ends_;  // of the steps that are not collected
  StepId step_ = 0;
  uint64_t num_drawn_ = 0;
  mutable std::mutex mutex_;  // the engine's thread takes steps, the clients' one says what is measured and reads it
  size_t num_streams_ = 0;
  clockid_t clients_ = CLOCK_THREAD_CPUTIME_ID;
  Measured measured_;
  Measured begin_;
};

// The server as `kipp serve` makes it, less its log.
struct Server {
  Server(const char* artifact, microseconds step, bool look_ahead) {
    auto file = ModelFile::open(artifact, {.allow_synthetic = true});
    if (!file) fail(file.error().message);
    auto tokenizer = Tokenizer::create(file->tokenizer());
    if (!tokenizer) fail(tokenizer.error().message);
    auto paced = std::make_unique<PacedBackend>(step);
    backend = paced.get();
    const Limits limits{
        .max_tokens_per_step = 2048, .max_sequences = kMaxStreams, .max_head_rows = kMaxStreams, .context = kContext};
    constexpr int32_t kBlocks = kMaxStreams * kContext / 32;
    model = std::make_unique<Model>(std::make_unique<Model::Impl>(
        Model::Impl{std::move(*file), *std::move(tokenizer), limits, std::move(paced), BlockPool(kBlocks, 7), {}}));
    service = GenerationService::start(*model, {.engine = {.look_ahead = look_ahead}, .max_waiting = 1000}).value();
    api::ApiOptions options;
    options.defaults.models = {"paced"};
    options.defaults.num_tokens = model->info().num_tokens();
    options.defaults.context = kContext;
    api = std::make_unique<api::ApiServer>(*model, *service, std::move(options));
    http = http::Server::start({}, [this](auto exchange) { api->handle(exchange); }).value();
  }

  PacedBackend* backend = nullptr;
  std::unique_ptr<Model> model;
  std::unique_ptr<GenerationService> service;
  std::unique_ptr<api::ApiServer> api;
  std::unique_ptr<http::Server> http;
};

int connect_and_ask(uint16_t port, size_t number) {
  const int client = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fail("cannot connect");
  const std::string body =
      fmt::format(R"({{"prompt":[{},5,6,7],"max_tokens":{},"temperature":0,"ignore_eos":true,"stream":true}})",
                  number + 1, kTokens);
  const std::string request =
      fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}",
                  body.size(), body);
  if (::send(client, request.data(), request.size(), 0) != static_cast<ssize_t>(request.size())) fail("cannot send");
  return client;
}

// Reads until the server has closed all of them.
void read_all(const std::vector<int>& clients) {
  std::vector<pollfd> waiting;
  for (const int client : clients) waiting.push_back({.fd = client, .events = POLLIN, .revents = 0});
  std::array<char, 65536> buffer{};
  while (!waiting.empty()) {
    ::poll(waiting.data(), waiting.size(), -1);
    std::erase_if(waiting, [&](const pollfd& one) {
      return one.revents != 0 && ::recv(one.fd, buffer.data(), buffer.size(), 0) <= 0;
    });
  }
}

void measure(Server& server, size_t num_streams, microseconds step, bool look_ahead) {
  clockid_t own_clock{};
  if (::pthread_getcpuclockid(::pthread_self(), &own_clock) != 0) fail("no CPU clock of a thread");
  server.backend->expect(num_streams, own_clock);
  std::vector<int> clients;
  for (size_t i = 0; i < num_streams; ++i) clients.push_back(connect_and_ask(server.http->port(), i));
  read_all(clients);
  for (const int one : clients) ::close(one);
  const Measured found = server.backend->measured();
  if (found.num_steps < 2) fail("the streams never ran together");
  const auto steps = static_cast<double>(found.num_steps - 1);
  const double tokens = steps * static_cast<double>(num_streams);
  fmt::print(
      R"({{"streams": {}, "look_ahead": {}, "step_us": {}, "us_between_tokens": {:.1f}, "tokens_per_second": {:.0f}, )"
      "\"engine_us\": {:.3f}, \"server_us\": {:.3f}}}\n",
      num_streams, look_ahead, step.count(), found.wall / steps * 1e6, tokens / found.wall, found.engine / tokens * 1e6,
      found.others / tokens * 1e6);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) fail("expected: ARTIFACT [STEP_MICROSECONDS [STREAMS...]]");
  const microseconds step(argc > 2 ? std::atoi(argv[2]) : 0);
  std::vector<int> sizes = {1, 8, 32, 64};
  if (argc > 3) sizes.clear();
  for (int i = 3; i < argc; ++i) sizes.push_back(std::atoi(argv[i]));
  for (const bool look_ahead : {false, true}) {
    Server server(argv[1], step, look_ahead);
    for (const int size : sizes) {
      if (size < 1 || size > kMaxStreams) fail("a number of streams is out of range");
      measure(server, static_cast<size_t>(size), step, look_ahead);
    }
  }
  return 0;
}
