// See api_fixture.h.
#include "server/api/api_fixture.h"

#include <chrono>
#include <ostream>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "gguf/model_file.h"
#include "server/openai/requests.h"
#include "server/sse.h"

namespace kipp::testing {
namespace {

using openai::testing::at;
using std::chrono::seconds;

constexpr seconds kPatience{600};  // for sanitizers on a busy machine

std::string text_at(const Json& json) {
  return json.is_string() ? json.as_string() : std::string();
}

// delta: of a chunk, or the message of a whole answer, whose calls have no index.
void add_message(const Json& delta, Said& said) {
  said.content += text_at(at(delta, "content"));
  said.reasoning += text_at(at(delta, "reasoning_content"));
  const std::vector<Json>& calls = at(delta, "tool_calls").items();
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto index = static_cast<size_t>(at(calls[i], "index").as_int64().value_or(static_cast<int64_t>(i)));
    if (index >= said.calls.size()) {
      EXPECT_EQ(index, said.calls.size()) << "calls come in their order";
      EXPECT_EQ(text_at(at(calls[i], "type")), "function");
      said.calls.emplace_back();
      said.call_ids.push_back(text_at(at(calls[i], "id")));
    } else {
      EXPECT_EQ(calls[i].find("id"), nullptr) << "once";
    }
    said.calls.at(index).first += text_at(at(calls[i], "function", "name"));
    said.calls.at(index).second += text_at(at(calls[i], "function", "arguments"));
  }
}

void add_choice(const Json& choice, std::vector<Said>& choices) {
  const auto index = static_cast<size_t>(at(choice, "index").as_int64().value_or(0));
  if (choices.size() <= index) choices.resize(index + 1);
  Said& said = choices[index];
  EXPECT_EQ(said.finish, "") << "nothing follows the finish";
  if (const Json* delta = choice.find_value("delta")) add_message(*delta, said);
  if (const Json* message = choice.find_value("message")) add_message(*message, said);
  said.content += text_at(at(choice, "text"));
  said.finish = text_at(at(choice, "finish_reason"));
  for (const Json& token : at(choice, "logprobs", "content").items())
    said.tokens.push_back(text_at(at(token, "token")));
  for (const Json& token : at(choice, "logprobs", "tokens").items()) said.tokens.push_back(text_at(token));
}

ApiAnswer read_stream(const std::string& text) {
  ApiAnswer answer;
  std::vector<std::string> data = openai::testing::event_data(text);
  answer.ended_with_done = !data.empty() && data.back() == "[DONE]";
  if (answer.ended_with_done) data.pop_back();
  for (const std::string& event : data) {
    answer.events.push_back(parse_json(event).value());
    const Json& json = answer.events.back();
    for (const Json& choice : at(json, "choices").items()) add_choice(choice, answer.choices);
    if (const Json* usage = json.find_value("usage")) answer.usage = *usage;
    if (!at(json, "choices").items().empty()) answer.json = json;
  }
  return answer;
}

}  // namespace

void PrintTo(const Said& said, std::ostream* out) {
  *out << fmt::format("content {} reasoning {} finish {} {} tokens", json_text(said.content), json_text(said.reasoning),
                      said.finish, said.tokens.size());
  for (const auto& [name, arguments] : said.calls) *out << fmt::format(" call {} {}", name, arguments);
}

RecordedExchange::RecordedExchange(std::string path, std::string body) {
  request_.method = "POST";
  request_.path = std::move(path);
  request_.body = std::move(body);
  request_.received = std::chrono::steady_clock::now();
}

void RecordedExchange::respond(http::Response response) {
  const std::lock_guard lock(mutex_);
  EXPECT_FALSE(streams_ || ended_) << "one answer each";
  if (!closed_) response_ = std::move(response);
  end();
}

void RecordedExchange::begin_stream(http::Response head) {
  const std::lock_guard lock(mutex_);
  EXPECT_FALSE(streams_ || ended_) << "one answer each";
  response_ = std::move(head);
  streams_ = true;
}

void RecordedExchange::write(std::string piece) {
  const std::lock_guard lock(mutex_);
  EXPECT_TRUE(streams_ && !ended_);
  if (!closed_) pieces_.push_back(std::move(piece));
  changed_.notify_all();
}

void RecordedExchange::end_stream() {
  const std::lock_guard lock(mutex_);
  EXPECT_TRUE(streams_ && !ended_);
  end();
}

void RecordedExchange::end() {
  ended_ = true;
  if (closes_at_end_) closed_ = true;
  on_closed_ = {};
  changed_.notify_all();
}

bool RecordedExchange::is_open() const {
  const std::lock_guard lock(mutex_);
  return !closed_;
}

void RecordedExchange::on_closed(std::function<void()> call) {
  {
    const std::lock_guard lock(mutex_);
    taken_ = true;
    changed_.notify_all();
    if (ended_) return;
    if (!closed_) {
      on_closed_ = std::move(call);
      return;
    }
  }
  call();
}

void RecordedExchange::close() {
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    call.swap(on_closed_);
  }
  if (call) call();
}

void RecordedExchange::wait_until_taken() {
  std::unique_lock lock(mutex_);
  EXPECT_TRUE(changed_.wait_for(lock, kPatience, [this] { return taken_; }));
}

void RecordedExchange::wait_for(size_t pieces) {
  std::unique_lock lock(mutex_);
  EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return ended_ || pieces_.size() >= pieces; }));
}

const http::Response& RecordedExchange::wait() {
  std::unique_lock lock(mutex_);
  EXPECT_TRUE(changed_.wait_for(lock, kPatience, [this] { return ended_; })) << request_.body;
  return response_;
}

std::vector<std::string> RecordedExchange::pieces() const {
  const std::lock_guard lock(mutex_);
  return pieces_;
}

ApiTest::ApiTest(int32_t num_blocks, int32_t max_sequences, int32_t max_waiting)
    : scripted_(open_scripted(num_blocks, max_sequences)),
      service_(GenerationService::start(*scripted_.model, {.max_waiting = max_waiting}).value()),
      num_blocks_(num_blocks) {
  make_api();
}

void ApiTest::make_api() {
  api::ApiOptions options;
  options.logger = logger_.get();
  options.defaults.num_tokens = scripted_.model->info().num_tokens();
  options.defaults.context = scripted_.model->context();
  api_ = std::make_unique<api::ApiServer>(*scripted_.model, *service_, options);
}

void ApiTest::log_to(int descriptor) {
  logger_ = std::make_unique<log::Logger>(log::Options{.format = log::Format::kJson, .descriptor = descriptor});
  make_api();
}

std::vector<int32_t> ApiTest::ids(std::string_view text) const {
  return tokenizer().encode(text, {.special_tokens = SpecialTokens::kParse}).value();
}

std::vector<int32_t> ApiTest::chat_prompt(std::string_view fields) const {
  openai::Defaults defaults;
  const auto request = openai::parse_chat_completion_request(chat_body(fields), defaults);
  if (!request) ADD_FAILURE() << request.error().message;
  return render_chat(request.value().chat, Variant::kInstruct, tokenizer()).value().ids;
}

void ApiTest::script_chat(std::string_view fields, const std::vector<std::string>& texts) {
  std::vector<std::vector<int32_t>> choices;
  choices.reserve(texts.size());
  for (const std::string& text : texts) choices.push_back(ids(text));
  script_chat_ids(fields, std::move(choices));
}

void ApiTest::script_chat_ids(std::string_view fields, std::vector<std::vector<int32_t>> choices) {
  backend().add({.prompt = chat_prompt(fields), .choices = std::move(choices)});
}

void ApiTest::script_prompt(std::string_view prompt, const std::vector<std::string>& texts) {
  std::vector<std::vector<int32_t>> choices;
  choices.reserve(texts.size());
  for (const std::string& text : texts) choices.push_back(ids(text));
  backend().add({.prompt = ids(prompt), .choices = std::move(choices)});
}

std::shared_ptr<RecordedExchange> ApiTest::send(std::string path, std::string body) {
  auto exchange = std::make_shared<RecordedExchange>(std::move(path), std::move(body));
  api_->handle(exchange);
  return exchange;
}

ApiAnswer ApiTest::read(RecordedExchange& exchange) {
  const http::Response& response = exchange.wait();
  ApiAnswer answer;
  if (response.content_type == "text/event-stream") {
    std::string text;
    for (const std::string& piece : exchange.pieces()) text += piece;
    answer = read_stream(text);
  } else {
    answer.json = parse_json(response.body).value();
    for (const Json& choice : at(answer.json, "choices").items()) add_choice(choice, answer.choices);
    if (const Json* usage = answer.json.find_value("usage")) answer.usage = *usage;
  }
  answer.status = response.status;
  return answer;
}

ApiAnswer ApiTest::ask(const std::string& path, const std::string& body) {
  return read(*send(path, body));
}

// fields: an object without its closing brace.
ApiAnswer ApiTest::ask_both_ways(const std::string& path, std::string_view fields) {
  const ApiAnswer whole = ask(path, fmt::format("{}}}", fields));
  const ApiAnswer streamed =
      ask(path, fmt::format(R"({},"stream":true,"stream_options":{{"include_usage":true}}}})", fields));
  EXPECT_EQ(whole.status, streamed.status);
  EXPECT_EQ(whole.choices, streamed.choices) << fields;
  EXPECT_TRUE(streamed.ended_with_done);
  if (whole.usage && streamed.usage) {
    for (const char* count : {"prompt_tokens", "completion_tokens", "total_tokens"}) {
      EXPECT_EQ(at(*whole.usage, count).literal(), at(*streamed.usage, count).literal()) << count;
    }
    EXPECT_EQ(at(*whole.usage, "completion_tokens_details", "reasoning_tokens").literal(),
              at(*streamed.usage, "completion_tokens_details", "reasoning_tokens").literal());
  } else {
    EXPECT_EQ(whole.usage.has_value(), streamed.usage.has_value());
  }
  ApiAnswer answer = whole;
  answer.events = streamed.events;
  return answer;
}

ApiAnswer ApiTest::chat(std::string_view fields) {
  std::string body = chat_body(fields);
  body.pop_back();
  return ask_both_ways("/v1/chat/completions", body);
}

ApiAnswer ApiTest::complete(std::string_view prompt, std::string_view fields) {
  return ask_both_ways("/v1/completions", fmt::format(R"({{"prompt":{},"temperature":0{}{})", json_text(prompt),
                                                      fields.empty() ? "" : ",", fields));
}

void ApiTest::expect_idle() {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  ServiceStats stats = service_->stats();
  const auto is_idle = [&] { return stats.num_requests == 0 && stats.scheduler.num_blocks_used == 0; };
  while (!is_idle() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    stats = service_->stats();
  }
  EXPECT_EQ(stats.num_requests, 0);
  EXPECT_EQ(stats.num_waiting, 0);
  EXPECT_EQ(stats.num_waiting_choices, 0);
  EXPECT_EQ(stats.scheduler.num_blocks_used, 0);
  EXPECT_EQ(scripted_.model->num_free_blocks(), num_blocks_);
}

std::string json_text(std::string_view text) {
  return write_json(Json::string(std::string(text)));
}

std::string chat_body(std::string_view fields) {
  const bool has_messages = fields.find("\"messages\"") != std::string_view::npos;
  const char* messages = has_messages ? "" : R"("messages":[{"role":"user","content":"Hi"}],)";
  return fmt::format(R"({{{}"temperature":0{}{}}})", messages, fields.empty() ? "" : ",", fields);
}

}  // namespace kipp::testing
