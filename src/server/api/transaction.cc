// See transaction.h. Messages of errors quote what the client sent, so they count as prompts here.
#include "server/api/transaction.h"

#include <fmt/format.h>

#include "base/json_values.h"

namespace kipp::api {
namespace {

// Of a body in the log: enough to see what was asked, and not 64 MiB.
constexpr size_t kMaxLoggedBytes = 64U << 10;

Json text(std::string value) {
  return Json::string(std::move(value));
}

Json milliseconds(double value) {
  return Json::number_literal(fmt::format("{:.3f}", value));
}

}  // namespace

void RefusalCounts::add(const openai::ApiError& error) {
  const std::lock_guard lock(mutex_);
  ++counts_[{error.code, error.status}];
}

std::map<RefusalCounts::Key, uint64_t> RefusalCounts::snapshot() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

Transaction::Transaction(std::shared_ptr<http::Exchange> exchange, std::shared_ptr<Observers> observers)
    : exchange_(std::move(exchange)), observers_(std::move(observers)) {}

Transaction::~Transaction() {
  if (observers_->logger != nullptr) log();
}

void Transaction::respond(http::Response response) {
  status_ = response.status;
  slot_.release();
  exchange_->respond(std::move(response));
}

void Transaction::begin_stream(http::Response head) {
  status_ = head.status;
  exchange_->begin_stream(std::move(head));
}

void Transaction::end_stream() {
  slot_.release();
  exchange_->end_stream();
}

void Transaction::refuse(const openai::ApiError& error, std::vector<http::Header> headers) {
  note_error(error);
  respond({.status = error.status, .headers = std::move(headers), .body = write_json(openai::error_json(error))});
}

void Transaction::note_error(const openai::ApiError& error) {
  observers_->refusals.add(error);
  error_ = error;
}

bool Transaction::take_slot() {
  const int32_t key = request().key_index;
  if (observers_->keys.take(key, slot_)) return true;
  const int32_t limit = observers_->keys.limit(key);
  refuse({.status = 429,
          .type = "rate_limit_error",
          .code = "key_limit",
          .message = fmt::format("this API key has {} request{} running, and may have no more at a time", limit,
                                 limit == 1 ? "" : "s")},
         {{"Retry-After", "1"}});
  return false;
}

double Transaction::elapsed_ms() const {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - request().received).count();
}

const char* Transaction::outcome() const {
  if (generation_ && generation_->was_cancelled) return "request_cancelled";
  if (status_ == 0 || status_ >= 500 || (error_ && error_->status >= 500)) return "request_failed";
  return error_ ? "request_refused" : "request_finished";
}

// What asks for nothing but facts about the server is of interest to nobody but who looks for it.
void Transaction::log() const {
  const http::Request& asked = request();
  const std::string event = outcome();
  const log::Level level = event == "request_failed"                ? log::Level::kError
                           : asked.method == "GET" && status_ < 400 ? log::Level::kDebug
                                                                    : log::Level::kInfo;
  if (!observers_->logger->wants(level)) return;
  std::vector<Json::Member> fields = {{"request_id", text(asked.id)}};
  if (const std::string key = observers_->keys.name(asked.key_index); !key.empty())
    fields.push_back({"key", text(key)});
  fields.push_back({"peer", text(asked.peer)});
  fields.push_back({"method", text(asked.method)});
  fields.push_back({"path", text(asked.path)});
  fields.push_back({"status", status_ == 0 ? Json() : Json::number(int64_t{status_})});
  if (generation_) {
    const GenerationNotes& notes = *generation_;
    fields.push_back({"id", text(notes.id)});
    fields.push_back({"stream", Json::boolean(notes.stream)});
    fields.push_back({"prompt_tokens", Json::number(notes.prompt_tokens)});
    fields.push_back({"cached_tokens", Json::number(notes.cached_tokens)});
    fields.push_back({"generated_tokens", Json::number(notes.generated_tokens)});
    fields.push_back({"finish_reasons", array_json(notes.finish_reasons, text)});
    fields.push_back({"queue_ms", notes.queue_ms ? milliseconds(*notes.queue_ms) : Json()});
    fields.push_back({"first_token_ms", notes.first_token_ms ? milliseconds(*notes.first_token_ms) : Json()});
  }
  fields.push_back({"total_ms", milliseconds(elapsed_ms())});
  if (error_) fields.push_back({"error", text(error_->code)});
  if (observers_->log_prompts) {
    if (error_) fields.push_back({"error_message", text(error_->message)});
    if (!asked.body.empty()) fields.push_back({"body", text(asked.body.substr(0, kMaxLoggedBytes))});
  }
  observers_->logger->write(level, event, std::move(fields));
}

}  // namespace kipp::api
