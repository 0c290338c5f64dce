// The routes of ApiServer that read a prompt: to tokens, and from there to the service or back to the client.
#include <chrono>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/draw_seed.h"
#include "gguf/model_file.h"
#include "kipp/chat.h"
#include "server/api/api_server.h"
#include "server/api/chat_call.h"
#include "server/api/completion_call.h"

namespace kipp::api {
namespace {

using openai::ApiError;
using openai::ApiResult;

// Control tokens of a text prompt are parsed unless the request says that it is plain.
ApiResult<std::vector<int32_t>> encode(const Tokenizer& tokenizer, const std::string& text, bool plain,
                                       std::string param) {
  auto ids = tokenizer.encode(text, {.special_tokens = plain ? SpecialTokens::kPlain : SpecialTokens::kParse});
  if (ids) return *std::move(ids);
  return openai::refuse(std::move(param), "invalid_value", ids.error().message);
}

ApiError of_refusal(const Refusal& refusal) {
  switch (refusal.kind) {
    case Refusal::Kind::kInvalid: return openai::api_error(refusal.error);
    case Refusal::Kind::kBusy:
      return {.status = 429, .type = "rate_limit_error", .code = "queue_full", .message = refusal.error.message};
    case Refusal::Kind::kStopping:
      return {.status = 503, .type = "server_error", .code = "shutting_down", .message = refusal.error.message};
  }
  return {.status = 500, .type = "server_error", .message = refusal.error.message};
}

int64_t seconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

}  // namespace

ApiResult<RenderedPrompt> ApiServer::render(const ChatRequest& chat) const {
  auto rendered = render_chat(chat, model_.info().checkpoint->variant, model_.tokenizer());
  if (!rendered) return tl::unexpected<ApiError>(openai::api_error(rendered.error()));
  return *std::move(rendered);
}

ApiResult<void> ApiServer::check_length(size_t num_prompt, const char* param) const {
  if (num_prompt < static_cast<size_t>(model_.context())) return {};
  return tl::unexpected<ApiError>(openai::prompt_too_long(static_cast<int64_t>(num_prompt), model_.context(), param));
}

CallContext ApiServer::call_context(const Exchange& exchange, const char* prefix, const std::string& model) {
  const std::string served = options_.defaults.models.empty() ? model : options_.defaults.models.front();
  return {.exchange = exchange,
          .tokenizer = model_.tokenizer(),
          .identity = {.id = fmt::format("{}{:08x}{:012x}", prefix, id_salt_, ++num_ids_),
                       .created = seconds_since_1970(),
                       .model = model.empty() ? served : model,
                       .system_fingerprint = options_.system_fingerprint}};
}

ApiResult<void> ApiServer::run(const Exchange& exchange, const std::shared_ptr<Call>& call,
                               std::vector<BatchRequest> requests) {
  std::vector<std::shared_ptr<BatchSink>> sinks = call->make_sinks();
  std::vector<GenerationService::Order> orders;
  orders.reserve(requests.size());
  const SchedulerTime arrived = exchange->request().received;
  for (size_t i = 0; i < requests.size(); ++i) orders.push_back({std::move(requests[i]), std::move(sinks[i]), arrived});
  exchange->start_generation(call->notes());  // the service's thread goes on with them
  const auto ids = service_.submit(std::move(orders));
  if (!ids) {
    if (ids.error().kind != Refusal::Kind::kBusy) return tl::unexpected<ApiError>(of_refusal(ids.error()));
    exchange->refuse(of_refusal(ids.error()), {{"Retry-After", std::to_string(ids.error().retry_after_seconds)}});
    return {};
  }
  const auto cancel = [&service = service_, ids = *ids] {
    for (const uint64_t id : ids) service.cancel(id);
  };
  call->on_failure(cancel);
  exchange->on_closed(cancel);
  return {};
}

ApiResult<void> ApiServer::complete(const Exchange& exchange) {
  auto request = openai::parse_completion_request(exchange->request().body, options_.defaults);
  if (!request) return tl::unexpected<ApiError>(std::move(request).error());
  const Tokenizer& tokenizer = model_.tokenizer();
  std::vector<CompletionPrompt> prompts;
  std::vector<BatchRequest> batch;
  const uint64_t seed = request->generation.seed.value_or(draw_seed());
  for (const openai::CompletionRequest::Prompt& prompt : request->prompts) {
    CompletionPrompt known;
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      auto ids = encode(tokenizer, *text, request->plain, "prompt");
      if (!ids) return tl::unexpected<ApiError>(std::move(ids).error());
      known.ids = *std::move(ids);
    } else {
      known.ids = std::get<std::vector<int32_t>>(prompt);
    }
    // Of the ids, whose normalised text the offsets of tokens are about.
    if (request->echo) known.text = tokenizer.decode(known.ids).value_or(std::string());
    if (auto fits = check_length(known.ids.size(), "prompt"); !fits) return fits;
    batch.push_back(batch_request(request->generation, known.ids, model_.info().stop_token_ids, seed));
    batch.back().prompt_logprobs = request->echo && request->generation.num_logprobs >= 0;
    prompts.push_back(std::move(known));
  }
  const auto call = make_completion_call(call_context(exchange, "cmpl-", request->model), *request, std::move(prompts));
  return run(exchange, call, std::move(batch));
}

ApiResult<void> ApiServer::chat(const Exchange& exchange) {
  auto request = openai::parse_chat_completion_request(exchange->request().body, options_.defaults);
  if (!request) return tl::unexpected<ApiError>(std::move(request).error());
  auto prompt = render(request->chat);
  if (!prompt) return tl::unexpected<ApiError>(std::move(prompt).error());
  if (auto fits = check_length(prompt->ids.size(), "messages"); !fits) return fits;
  const uint64_t seed = request->generation.seed.value_or(draw_seed());
  std::vector<BatchRequest> batch;
  batch.push_back(batch_request(request->generation, prompt->ids, model_.info().stop_token_ids, seed));
  const auto call = make_chat_call(call_context(exchange, "chatcmpl-", request->model), *request, prompt->ids);
  return run(exchange, call, std::move(batch));
}

ApiServer::Answer ApiServer::tokenized(const std::string& body) const {
  const auto request = openai::parse_tokenize_request(body, options_.defaults);
  if (!request) return tl::unexpected<ApiError>(request.error());
  std::vector<int32_t> ids;
  if (request->prompt) {
    auto encoded = encode(model_.tokenizer(), *request->prompt, request->plain, "prompt");
    if (!encoded) return tl::unexpected<ApiError>(std::move(encoded).error());
    ids = *std::move(encoded);
  } else {
    auto rendered = render(*request->chat);
    if (!rendered) return tl::unexpected<ApiError>(std::move(rendered).error());
    ids = std::move(rendered->ids);
  }
  std::vector<std::string> texts;
  if (request->return_token_strs) {
    for (const int32_t id : ids) texts.push_back(openai::token_text(model_.tokenizer().token_bytes(id).value_or("")));
  }
  return openai::tokenize_json(ids, model_.context(), request->return_token_strs ? &texts : nullptr);
}

ApiServer::Answer ApiServer::detokenized(const std::string& body) const {
  const auto request = openai::parse_detokenize_request(body, options_.defaults);
  if (!request) return tl::unexpected<ApiError>(request.error());
  auto text = model_.tokenizer().decode(request->tokens, request->skip_special_tokens);
  if (!text) return tl::unexpected<ApiError>(openai::api_error(text.error()));
  return openai::detokenize_json(*std::move(text));
}

ApiServer::Answer ApiServer::templated(const std::string& body) const {
  const auto request = openai::parse_apply_template_request(body, options_.defaults);
  if (!request) return tl::unexpected<ApiError>(request.error());
  const auto rendered = render(request->chat);
  if (!rendered) return tl::unexpected<ApiError>(rendered.error());
  return openai::apply_template_json(*rendered);
}

}  // namespace kipp::api
