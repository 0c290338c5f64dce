// Threads, listeners and the life of a server (http_server.h). A connection stays on the thread that it was given.
#include "server/http/http_server.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <utility>

#include "base/blocked_signals.h"
#include "server/http/connection.h"
#include "server/http/listener.h"
#include "server/http/tls_context.h"

namespace kipp::http {
namespace asio = boost::asio;
using boost::system::error_code;
using namespace std::chrono_literals;

namespace {

constexpr auto kUseTuple = asio::as_tuple(asio::use_awaitable);
// Connections beyond the limit that are told so at the same time; what comes on top is closed without a word.
constexpr size_t kMaxRefusedConnections = 64;
// Without descriptors or memory for another connection, accept() is tried again this much later.
constexpr auto kAcceptPause = 50ms;
// What is given to last words (503, the last piece of a stream) once a drain is over.
constexpr auto kLastWords = 500ms;

// One thread with its connections, which no other thread touches.
struct IoThread {
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  std::unordered_set<std::shared_ptr<Connection>> connections;
  std::thread thread;
};

bool is_shortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

Result<void> check_options(const Options& options) {
  const auto invalid = [](const char* what) { return make_error(ErrorCode::kInvalidArgument, what); };
  if (options.host.empty() && options.unix_socket.empty()) {
    return invalid("neither a host nor a Unix socket to listen on");
  }
  if (options.tls_certificate.empty() != options.tls_key.empty()) {
    return invalid("TLS needs both a certificate and a key");
  }
  if (options.num_threads < 1 || options.num_threads > 256) {
    return invalid("the number of I/O threads must be 1 to 256");
  }
  if (options.max_header_bytes < 256 || options.max_header_bytes > (1U << 20) || options.max_connections < 1 ||
      options.max_queued_bytes < 1) {
    return invalid("headers may be limited to 256 bytes to 1 MiB; connections and queued bytes to 1 at least");
  }
  if (std::min({options.idle_timeout, options.header_timeout, options.body_timeout, options.write_timeout}) < 1ms) {
    return invalid("time limits must be above 0");
  }
  for (const std::string& key : options.api_keys) {
    if (key.empty()) {
      return invalid("an API key is empty");
    }
  }
  return {};
}

}  // namespace

class Server::Impl {
 public:
  Impl(Options options, Handler handler) : context_(std::move(options), std::move(handler)) {}
  ~Impl() { stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Result<void> start();
  void stop_accepting();
  bool drain(std::chrono::steady_clock::time_point deadline);
  Statistics statistics() const { return context_.counters.snapshot(); }
  uint16_t port() const { return port_; }

 private:
  Result<void> start_threads();
  void stop();
  asio::awaitable<void> accept_loop(const Listener& listener, asio::posix::stream_descriptor& readiness);
  void adopt(Listener::Accepted accepted, int family, bool has_tls);
  void for_all(void (Connection::*call)());
  bool wait_until_empty(std::chrono::steady_clock::time_point deadline);

  ServerContext context_;
  std::unique_ptr<asio::ssl::context> tls_;
  std::vector<Listener> listeners_;
  uint16_t port_ = 0;
  std::atomic<bool> is_stopping_{false};
  std::atomic<size_t> num_refused_{0};  // open connections beyond the limit
  size_t next_thread_ = 0;              // of the thread that accepts
  std::mutex mutex_;
  std::condition_variable ended_;  // a connection has ended
  // Last, so that what connections use is there until their threads have ended.
  std::vector<std::unique_ptr<IoThread>> threads_;
};

Result<void> Server::Impl::start() {
  const Options& options = context_.options;
  KIPP_TRY(check_options(options));
  if (!options.tls_certificate.empty()) {
    KIPP_ASSIGN(TlsContext tls, make_tls_context(options.tls_certificate, options.tls_key));
    tls_ = std::make_unique<asio::ssl::context>(tls.release());
  }
  if (!options.host.empty()) {
    KIPP_ASSIGN(Listener listener, Listener::tcp(options.host, options.port));
    port_ = listener.port();
    listeners_.push_back(std::move(listener));
  }
  if (!options.unix_socket.empty()) {
    KIPP_ASSIGN(Listener listener, Listener::unix_socket(options.unix_socket));
    listeners_.push_back(std::move(listener));
  }
  return start_threads();
}

Result<void> Server::Impl::start_threads() {
  sigset_t all_signals;
  ::sigfillset(&all_signals);
  const BlockedSignals blocked(all_signals);  // they are for the threads of the program
  try {
    for (int32_t i = 0; i < context_.options.num_threads; ++i) {
      threads_.push_back(std::make_unique<IoThread>());
      // Asio makes the descriptors that it waits with for the first timer: now, so that their lack is an error here.
      const asio::steady_timer first(threads_.back()->io);
    }
    asio::io_context& io = threads_.front()->io;
    for (const Listener& listener : listeners_) {
      auto readiness = std::make_shared<asio::posix::stream_descriptor>(io, ::dup(listener.descriptor()));
      asio::co_spawn(io, [this, &listener, readiness] { return accept_loop(listener, *readiness); }, asio::detached);
    }
    for (const std::unique_ptr<IoThread>& thread : threads_) {
      thread->thread = std::thread([&io = thread->io] { io.run(); });
    }
  } catch (const std::exception& error) {
    return make_error(ErrorCode::kCapacity, fmt::format("cannot start the I/O threads: {}", error.what()));
  }
  return {};
}

asio::awaitable<void> Server::Impl::accept_loop(const Listener& listener, asio::posix::stream_descriptor& readiness) {
  asio::steady_timer pause(threads_.front()->io);
  const int family = listener.is_tcp() ? AF_INET : AF_UNIX;  // Asio asks only whether it is AF_UNIX
  while (!is_stopping_) {
    Listener::Accepted accepted = listener.accept();
    if (accepted.error == 0) {
      adopt(std::move(accepted), family, listener.is_tcp());
    } else if (accepted.error == EAGAIN) {
      co_await readiness.async_wait(asio::posix::stream_descriptor::wait_read, kUseTuple);
    } else if (is_shortage(accepted.error)) {
      pause.expires_after(kAcceptPause);
      co_await pause.async_wait(kUseTuple);
    }  // else that one connection has failed
  }
}

// Gives a connection to the next thread.
void Server::Impl::adopt(Listener::Accepted accepted, int family, bool has_tls) {
  Counters& counters = context_.counters;
  ++counters.connections;
  const bool is_refused = counters.open_connections - num_refused_ >= context_.options.max_connections;
  if (is_refused && num_refused_ >= kMaxRefusedConnections) {
    counters.add_refusal(503);
    return;
  }
  ++counters.open_connections;
  num_refused_ += is_refused ? 1 : 0;
  IoThread& thread = *threads_[next_thread_++ % threads_.size()];
  asio::ssl::context* tls = has_tls ? tls_.get() : nullptr;
  auto connection = std::make_shared<Connection>(thread.io, std::move(accepted.socket), family,
                                                 std::move(accepted.peer), tls, context_);
  asio::post(thread.io, [this, &thread, connection, is_refused] {
    thread.connections.insert(connection);
    connection->start(is_refused, [this, &thread, key = connection.get(), is_refused] {
      thread.connections.erase(key->shared_from_this());
      num_refused_ -= is_refused ? 1 : 0;
      const std::lock_guard lock(mutex_);
      --context_.counters.open_connections;
      ended_.notify_all();
    });
    if (is_stopping_) {  // it was accepted in the same moment
      connection->drain();
    }
  });
}

void Server::Impl::for_all(void (Connection::*call)()) {
  for (const std::unique_ptr<IoThread>& thread : threads_) {
    asio::post(thread->io, [&io_thread = *thread, call] {
      for (const std::shared_ptr<Connection>& connection : io_thread.connections) {
        (*connection.*call)();
      }
    });
  }
}

bool Server::Impl::wait_until_empty(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return ended_.wait_until(lock, deadline, [this] { return context_.counters.open_connections == 0; });
}

void Server::Impl::stop_accepting() {
  if (!is_stopping_.exchange(true)) {
    for (const Listener& listener : listeners_) {
      listener.stop();
    }
    for_all(&Connection::drain);
  }
}

bool Server::Impl::drain(std::chrono::steady_clock::time_point deadline) {
  stop_accepting();
  if (wait_until_empty(deadline)) {
    return true;
  }
  for_all(&Connection::end_now);
  if (!wait_until_empty(std::chrono::steady_clock::now() + kLastWords)) {
    for_all(&Connection::abort);
    wait_until_empty(std::chrono::steady_clock::now() + kLastWords);
  }
  return false;
}

void Server::Impl::stop() {
  if (threads_.empty()) {
    return;
  }
  drain(std::chrono::steady_clock::now());
  for (const std::unique_ptr<IoThread>& thread : threads_) {
    thread->work.reset();
  }
  for (const std::unique_ptr<IoThread>& thread : threads_) {
    if (thread->thread.joinable()) {
      thread->thread.join();
    }
  }
}

Result<std::unique_ptr<Server>> Server::start(Options options, Handler handler) {
  auto impl = std::make_unique<Impl>(std::move(options), std::move(handler));
  KIPP_TRY(impl->start());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

uint16_t Server::port() const {
  return impl_->port();
}
Statistics Server::statistics() const {
  return impl_->statistics();
}
void Server::stop_accepting() {
  impl_->stop_accepting();
}
bool Server::drain(std::chrono::steady_clock::time_point deadline) {
  return impl_->drain(deadline);
}

}  // namespace kipp::http
