// One request of the API with its answer, and what the log and the metrics will say of it. It is an exchange like the
// one of the HTTP server that it stands before; what it knows of the answer it learns on the way through.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/api/key_slots.h"
#include "server/http/http_server.h"
#include "server/log/logger.h"
#include "server/openai/api_error.h"

namespace kipp::api {

// Refusals and failures by their code and status, from any thread.
class RefusalCounts {
 public:
  using Key = std::pair<std::string, int>;
  void add(const openai::ApiError& error);
  std::map<Key, uint64_t> snapshot() const;

 private:
  mutable std::mutex mutex_;
  std::map<Key, uint64_t> counts_;
};

// What all transactions of a server share. The last of them may end after the server's routes are gone.
struct Observers {
  Observers(log::Logger* the_logger, bool also_prompts, std::vector<KeyInfo> api_keys)
      : logger(the_logger), log_prompts(also_prompts), keys(std::move(api_keys)) {}

  log::Logger* logger;  // outlives them; null: nothing is logged
  bool log_prompts;
  KeySlots keys;
  RefusalCounts refusals;
};

// What a generation adds to its line of the log.
struct GenerationNotes {
  std::string id = {};  // of the answer
  bool stream = false;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t generated_tokens = 0;
  std::optional<double> queue_ms = {};           // of the prompt that waited longest
  std::optional<double> first_token_ms = {};     // of the prompt whose first token came last
  std::vector<std::string> finish_reasons = {};  // of each choice
  bool was_cancelled = false;                    // the client left
};

class Transaction final : public http::Exchange {
 public:
  Transaction(std::shared_ptr<http::Exchange> exchange, std::shared_ptr<Observers> observers);
  ~Transaction() override;  // writes the line
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  const http::Request& request() const override { return exchange_->request(); }
  void respond(http::Response response) override;
  void begin_stream(http::Response head) override;
  void write(std::string piece) override { exchange_->write(std::move(piece)); }
  void end_stream() override;
  size_t queued_bytes() const override { return exchange_->queued_bytes(); }
  bool is_open() const override { return exchange_->is_open(); }
  void on_closed(std::function<void()> call) override { exchange_->on_closed(std::move(call)); }

  // Answers with the error. headers: such as Retry-After or Allow.
  void refuse(const openai::ApiError& error, std::vector<http::Header> headers = {});
  // An error is told within a stream that has begun: only noted here.
  void note_error(const openai::ApiError& error);

  // A place among the requests of its key, until the answer is complete: then the client may send the next one.
  // False: it has as many as it may, and was told so.
  bool take_slot();

  // One thread at a time: those that hand the request on to one another.
  void start_generation(GenerationNotes notes) { generation_ = std::move(notes); }
  GenerationNotes* generation() { return generation_ ? &*generation_ : nullptr; }

 private:
  double elapsed_ms() const;
  const char* outcome() const;
  void log() const;

  std::shared_ptr<http::Exchange> exchange_;
  std::shared_ptr<Observers> observers_;
  KeySlots::Slot slot_;
  int status_ = 0;  // 0: no answer had begun
  std::optional<openai::ApiError> error_;
  std::optional<GenerationNotes> generation_;
};

}  // namespace kipp::api
