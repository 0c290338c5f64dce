// See api_server.h. A handler returns an answer, or a refusal, or has handed the exchange to a call.
#include "server/api/api_server.h"

#include <algorithm>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "gguf/model_file.h"
#include "server/api/metrics_page.h"
#include "server/openai/openapi.h"

namespace kipp::api {
namespace {

constexpr size_t kMostWaitingTasks = 4096;
constexpr const char* kModelsPrefix = "/v1/models/";
constexpr std::string_view kPadToken = "<|endoftext|>";

http::Response json_response(const Json& json) {
  return {.body = write_json(json)};
}

openai::ApiError not_found(const std::string& path) {
  return {.status = 404, .code = "not_found", .message = "no such path: " + path};
}

}  // namespace

ApiServer::ApiServer(Model& model, GenerationService& service, ApiOptions options)
    : model_(model),
      service_(service),
      options_(std::move(options)),
      observers_(std::make_shared<Observers>(options_.logger, options_.log_prompts, options_.keys)),
      id_salt_(std::random_device()()),
      document_(write_json(openai::openapi_json(options_.defaults, options_.props.build.version))),
      workers_(options_.num_workers, kMostWaitingTasks) {}

const std::vector<ApiServer::Route>& ApiServer::routes() {
  static const std::vector<Route> kRoutes = {
      {"GET", "/health", &ApiServer::health, true},
      {"GET", "/v1/models", &ApiServer::models, true},
      {"GET", "/version", &ApiServer::version, true},
      {"GET", "/props", &ApiServer::props, true},
      {"GET", "/tokenizer_info", &ApiServer::tokenizer_info, true},
      {"GET", "/openapi.json", &ApiServer::openapi, true},
      {"GET", "/metrics", &ApiServer::metrics, true},
      {"POST", "/v1/completions", &ApiServer::completions, false},
      {"POST", "/v1/chat/completions", &ApiServer::chat_completions, false},
      {"POST", "/tokenize", &ApiServer::tokenize, false},
      {"POST", "/detokenize", &ApiServer::detokenize, false},
      {"POST", "/apply-template", &ApiServer::apply_template, false},
  };
  return kRoutes;
}

void ApiServer::handle(const std::shared_ptr<http::Exchange>& exchange) {
  route(std::make_shared<Transaction>(exchange, observers_));
}

void ApiServer::route(const Exchange& exchange) {
  const http::Request& request = exchange->request();
  if (request.path.starts_with(kModelsPrefix) && request.method == "GET") return model_of_path(exchange);
  std::string allowed;
  for (const Route& route : routes()) {
    if (request.path != route.path) continue;
    if (request.method != route.method) {
      allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
      continue;
    }
    if (route.at_once) return (this->*route.run)(exchange);
    const auto task = [this, exchange, run = route.run] { (this->*run)(exchange); };
    if (!workers_.post(task)) {
      exchange->refuse(
          {.status = 503, .type = "server_error", .code = "queue_full", .message = "too many requests wait"},
          {{"Retry-After", "1"}});
    }
    return;
  }
  if (allowed.empty()) return exchange->refuse(not_found(request.path));
  exchange->refuse({.status = 405,
                    .code = "method_not_allowed",
                    .message = fmt::format("{} has no {}", request.path, request.method)},
                   {{"Allow", allowed}});
}

void ApiServer::health(const Exchange& exchange) {
  exchange->respond(json_response(Json::object({{"status", Json::string("ok")}})));
}

void ApiServer::models(const Exchange& exchange) {
  std::vector<openai::ModelCard> cards;
  cards.reserve(options_.defaults.models.size());
  for (const std::string& name : options_.defaults.models) cards.push_back({name, options_.created, model_.context()});
  exchange->respond(json_response(openai::models_json(cards)));
}

void ApiServer::model_of_path(const Exchange& exchange) {
  const std::string id = exchange->request().path.substr(std::string_view(kModelsPrefix).size());
  if (std::ranges::find(options_.defaults.models, id) == options_.defaults.models.end()) {
    return exchange->refuse(openai::no_such_model(id));
  }
  exchange->respond(json_response(openai::model_json({id, options_.created, model_.context()})));
}

void ApiServer::version(const Exchange& exchange) {
  exchange->respond(json_response(openai::version_json(options_.props.build)));
}

void ApiServer::props(const Exchange& exchange) {
  exchange->respond(json_response(openai::props_json(options_.props, options_.defaults)));
}

void ApiServer::tokenizer_info(const Exchange& exchange) {
  const Tokenizer& tokenizer = model_.tokenizer();
  const auto text = [&](int32_t id) { return std::string(tokenizer.token_bytes(id).value_or("")); };
  openai::TokenizerInfo info{.pad_token = text(tokenizer.token_to_id(kPadToken)), .context = model_.context()};
  if (const std::vector<int32_t>& stops = model_.info().stop_token_ids; !stops.empty()) {
    info.eos_token = text(stops.front());
  }
  exchange->respond(json_response(openai::tokenizer_info_json(info)));
}

void ApiServer::openapi(const Exchange& exchange) {
  exchange->respond({.body = document_});
}

void ApiServer::metrics(const Exchange& exchange) {
  const std::string model = options_.defaults.models.empty() ? "" : options_.defaults.models.front();
  const http::Statistics http = options_.http_statistics ? options_.http_statistics() : http::Statistics{};
  exchange->respond({.body = metrics_page({.model = model,
                                           .build = options_.props.build,
                                           .service = service_.stats(),
                                           .requests = service_.metrics(),
                                           .http = http,
                                           .refusals = observers_->refusals.snapshot()}),
                     .content_type = metrics::TextPage::kContentType});
}

void ApiServer::completions(const Exchange& exchange) {
  if (!exchange->take_slot()) return;
  if (const auto handed = complete(exchange); !handed) exchange->refuse(handed.error());
}

void ApiServer::chat_completions(const Exchange& exchange) {
  if (!exchange->take_slot()) return;
  if (const auto handed = chat(exchange); !handed) exchange->refuse(handed.error());
}

void ApiServer::give(const Exchange& exchange, const Answer& answer) {
  if (!answer) return exchange->refuse(answer.error());
  exchange->respond(json_response(*answer));
}

void ApiServer::tokenize(const Exchange& exchange) {
  give(exchange, tokenized(exchange->request().body));
}

void ApiServer::detokenize(const Exchange& exchange) {
  give(exchange, detokenized(exchange->request().body));
}

void ApiServer::apply_template(const Exchange& exchange) {
  give(exchange, templated(exchange->request().body));
}

}  // namespace kipp::api
