// The whole way of a request behind HTTP: JSON in, service, scripted backend, JSON or server-sent events out.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/api/api_server.h"
#include "server/api/scripted_backend.h"
#include "server/log/logger.h"
#include "server/service/generation_service.h"

namespace kipp::testing {

// A client that is not there: it keeps what it is sent.
class RecordedExchange final : public http::Exchange {
 public:
  RecordedExchange(std::string path, std::string body);

  const http::Request& request() const override { return request_; }
  void respond(http::Response response) override;
  void begin_stream(http::Response head) override;
  void write(std::string piece) override;
  void end_stream() override;
  size_t queued_bytes() const override { return 0; }
  bool is_open() const override;
  void on_closed(std::function<void()> call) override;

  // The client goes away.
  void close();
  // It will as soon as it has its answer.
  void close_at_end() { closes_at_end_ = true; }
  // Waits until somebody wants to be told of it: the request is with the service.
  void wait_until_taken();
  // Waits until `pieces` writes came, or the end.
  void wait_for(size_t pieces);
  // Waits for the end of the answer.
  const http::Response& wait();
  std::vector<std::string> pieces() const;

 private:
  void end();

  http::Request request_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  http::Response response_;
  std::vector<std::string> pieces_;
  std::function<void()> on_closed_;
  bool streams_ = false;
  bool ended_ = false;
  bool closed_ = false;
  std::atomic<bool> closes_at_end_ = false;
  bool taken_ = false;
};

// What a client makes of an answer, whole or streamed: one of each choice.
struct Said {
  std::string content = {};  // of /v1/completions: the text
  std::string reasoning = {};
  std::vector<std::pair<std::string, std::string>> calls = {};  // name, arguments
  std::string finish = {};
  std::vector<std::string> tokens = {};  // of the log-probabilities
  std::vector<std::string> call_ids = {};

  bool operator==(const Said& other) const {
    return content == other.content && reasoning == other.reasoning && calls == other.calls && finish == other.finish &&
           tokens == other.tokens;
  }
};
void PrintTo(const Said& said, std::ostream* out);

struct ApiAnswer {
  int status = 0;
  Json json;                    // a whole answer, or the last event with choices
  std::vector<Json> events;     // of a stream, without [DONE]
  bool ended_with_done = true;  // of a stream
  std::vector<Said> choices;
  std::optional<Json> usage;

  const Said& said() const { return choices.at(0); }
};

class ApiTest : public ::testing::Test {
 protected:
  explicit ApiTest(int32_t num_blocks = 400, int32_t max_sequences = 16, int32_t max_waiting = 256);

  const Tokenizer& tokenizer() const { return scripted_.model->tokenizer(); }
  ScriptedBackend& backend() { return *scripted_.backend; }
  // Control tokens parsed.
  std::vector<int32_t> ids(std::string_view text) const;
  std::vector<int32_t> chat_prompt(std::string_view fields) const;

  // What the model says to a chat or prompt whose body has these fields; one text for each choice.
  void script_chat(std::string_view fields, const std::vector<std::string>& texts);
  void script_chat_ids(std::string_view fields, std::vector<std::vector<int32_t>> choices);
  void script_prompt(std::string_view prompt, const std::vector<std::string>& texts);

  std::shared_ptr<RecordedExchange> send(std::string path, std::string body);
  ApiAnswer ask(const std::string& path, const std::string& body);
  // {"messages": [a user's "Hi"], "temperature": 0, <fields>}, whole and as a stream: both must say the same.
  ApiAnswer chat(std::string_view fields);
  ApiAnswer complete(std::string_view prompt, std::string_view fields);
  static ApiAnswer read(RecordedExchange& exchange);

  // From now on requests are logged there, as JSON.
  void log_to(int descriptor);

  // Nothing runs and nobody holds a block.
  void expect_idle();
  void TearDown() override { expect_idle(); }

  ScriptedModel scripted_;
  std::unique_ptr<log::Logger> logger_;  // outlives what logs
  std::unique_ptr<GenerationService> service_;
  std::unique_ptr<api::ApiServer> api_;
  int32_t num_blocks_;

 private:
  void make_api();
  ApiAnswer ask_both_ways(const std::string& path, std::string_view fields);
};

// A JSON string.
std::string json_text(std::string_view text);
// {"messages": [a user's "Hi"], <fields>}
std::string chat_body(std::string_view fields);

}  // namespace kipp::testing
