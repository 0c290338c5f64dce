// What a request of the HTTP interface means: routes, parsing and encoding on worker threads, generation by the
// service.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kipp/engine.h"
#include "server/api/call.h"
#include "server/api/transaction.h"
#include "server/api/workers.h"
#include "server/http/http_server.h"
#include "server/openai/answers.h"
#include "server/openai/requests.h"
#include "server/service/generation_service.h"

namespace kipp::api {

struct ApiOptions {
  openai::Defaults defaults = {};
  openai::Props props = {};
  std::string system_fingerprint = {};
  int64_t created = 0;  // of the model: seconds since 1970
  int32_t num_workers = 2;
  std::vector<KeyInfo> keys = {};                          // by http::Request::key_index
  log::Logger* logger = nullptr;                           // outlives the server; null: no log
  bool log_prompts = false;                                // also bodies of requests, and messages that quote them
  std::function<http::Statistics()> http_statistics = {};  // for the metrics
};

class ApiServer {
 public:
  // Model and service outlive it.
  ApiServer(Model& model, GenerationService& service, ApiOptions options);

  // An http::Handler.
  void handle(const std::shared_ptr<http::Exchange>& exchange);

 private:
  using Exchange = std::shared_ptr<Transaction>;
  using Answer = openai::ApiResult<Json>;
  struct Route {
    const char* method;
    const char* path;
    void (ApiServer::*run)(const Exchange&);
    bool at_once;  // on the I/O thread: it takes no time
  };
  static const std::vector<Route>& routes();

  void health(const Exchange& exchange);
  void models(const Exchange& exchange);
  void version(const Exchange& exchange);
  void props(const Exchange& exchange);
  void tokenizer_info(const Exchange& exchange);
  void openapi(const Exchange& exchange);
  void metrics(const Exchange& exchange);
  void completions(const Exchange& exchange);
  void chat_completions(const Exchange& exchange);
  void tokenize(const Exchange& exchange);
  void detokenize(const Exchange& exchange);
  void apply_template(const Exchange& exchange);

  void route(const Exchange& exchange);
  void model_of_path(const Exchange& exchange);
  static void give(const Exchange& exchange, const Answer& answer);
  // These hand the exchange to a call, or refuse.
  openai::ApiResult<void> complete(const Exchange& exchange);
  openai::ApiResult<void> chat(const Exchange& exchange);
  Answer tokenized(const std::string& body) const;
  Answer detokenized(const std::string& body) const;
  Answer templated(const std::string& body) const;

  openai::ApiResult<RenderedPrompt> render(const ChatRequest& chat) const;
  openai::ApiResult<void> check_length(size_t num_prompt, const char* param) const;
  openai::ApiResult<void> run(const Exchange& exchange, const std::shared_ptr<Call>& call,
                              std::vector<BatchRequest> requests);
  CallContext call_context(const Exchange& exchange, const char* prefix, const std::string& model);

  Model& model_;
  GenerationService& service_;
  ApiOptions options_;
  std::shared_ptr<Observers> observers_;
  std::atomic<uint64_t> num_ids_ = 0;
  uint64_t id_salt_;      // so that ids of another run differ
  std::string document_;  // of /openapi.json
  Workers workers_;       // last: its threads use everything above
};

}  // namespace kipp::api
