// See api_server.h. A handler returns an answer, or a refusal, or has handed the exchange to a call.
#include "server/api/api_server.h"

#include <algorithm>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "server/openai/openapi.h"

namespace kipp::api {
namespace {

constexpr size_t kMostWaitingTasks = 4096;
constexpr const char* kModelsPrefix = "/v1/models/";

http::Response json_response(const Json& json, int status = 200) {
  return {.status = status, .body = write_json(json)};
}

http::Response error_response(const openai::ApiError& error) {
  http::Response response = json_response(openai::error_json(error), error.status);
  return response;
}

openai::ApiError not_found(const std::string& path) {
  return {.status = 404, .code = "not_found", .message = "no such path: " + path};
}

}  // namespace

ApiServer::ApiServer(Model& model, GenerationService& service, ApiOptions options)
    : model_(model),
      service_(service),
      options_(std::move(options)),
      id_salt_(std::random_device()()),
      workers_(options_.num_workers, kMostWaitingTasks) {}

const std::vector<ApiServer::Route>& ApiServer::routes() {
  static const std::vector<Route> kRoutes = {
      {"GET", "/health", &ApiServer::health, true},
      {"GET", "/v1/models", &ApiServer::models, true},
      {"GET", "/version", &ApiServer::version, true},
      {"GET", "/props", &ApiServer::props, true},
      {"GET", "/openapi.json", &ApiServer::openapi, false},
      {"POST", "/v1/completions", &ApiServer::completions, false},
      {"POST", "/v1/chat/completions", &ApiServer::chat_completions, false},
      {"POST", "/tokenize", &ApiServer::tokenize, false},
      {"POST", "/detokenize", &ApiServer::detokenize, false},
      {"POST", "/apply-template", &ApiServer::apply_template, false},
  };
  return kRoutes;
}

void ApiServer::handle(const Exchange& exchange) {
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
      exchange->respond(error_response({.status = 503, .type = "server_error", .message = "too many requests wait"}));
    }
    return;
  }
  if (allowed.empty()) return exchange->respond(error_response(not_found(request.path)));
  http::Response response = error_response({.status = 405,
                                            .code = "method_not_allowed",
                                            .message = fmt::format("{} has no {}", request.path, request.method)});
  response.headers.push_back({"Allow", allowed});
  exchange->respond(std::move(response));
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
    return exchange->respond(error_response(openai::no_such_model(id)));
  }
  exchange->respond(json_response(openai::model_json({id, options_.created, model_.context()})));
}

void ApiServer::version(const Exchange& exchange) {
  exchange->respond(json_response(openai::version_json(options_.props.build)));
}

void ApiServer::props(const Exchange& exchange) {
  exchange->respond(json_response(openai::props_json(options_.props, options_.defaults)));
}

void ApiServer::openapi(const Exchange& exchange) {
  exchange->respond(json_response(openai::openapi_json(options_.defaults, options_.props.build.version)));
}

void ApiServer::completions(const Exchange& exchange) {
  if (const auto handed = complete(exchange); !handed) exchange->respond(error_response(handed.error()));
}

void ApiServer::chat_completions(const Exchange& exchange) {
  if (const auto handed = chat(exchange); !handed) exchange->respond(error_response(handed.error()));
}

void ApiServer::tokenize(const Exchange& exchange) {
  const Answer answer = tokenized(exchange->request().body);
  exchange->respond(answer ? json_response(*answer) : error_response(answer.error()));
}

void ApiServer::detokenize(const Exchange& exchange) {
  const Answer answer = detokenized(exchange->request().body);
  exchange->respond(answer ? json_response(*answer) : error_response(answer.error()));
}

void ApiServer::apply_template(const Exchange& exchange) {
  const Answer answer = templated(exchange->request().body);
  exchange->respond(answer ? json_response(*answer) : error_response(answer.error()));
}

}  // namespace kipp::api
