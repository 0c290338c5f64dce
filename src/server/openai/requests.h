// Requests of the HTTP interface as native structs: JSON in, a struct or a refusal that names the field out. Pure
// functions: no clock, no socket, no tokenizer; safe to call from any thread. docs/server.md describes every field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "kipp/chat.h"
#include "kipp/sampling.h"
#include "kipp_checkpoints.h"
#include "server/openai/api_error.h"

namespace kipp::openai {

// What the server knows before any request: the values of fields that a request leaves out, and its limits.
struct Defaults {
  SamplingParams sampling = {};                   // the artifact's generation_config; temperature 1 and nothing else
  std::vector<std::string> models = {};           // names that "model" may have; empty: any
  Variant variant = Variant::kInstruct;           // whose chat template applies
  int32_t num_tokens = kNumTokens;                // ids below it have a token: ArtifactInfo::num_tokens()
  int32_t context = 4096;                         // positions of a sequence, output included
  std::optional<int32_t> completion_tokens = 16;  // max_tokens of /v1/completions, as in OpenAI's; unset: no limit
  int32_t max_choices = 1024;                     // prompts times n of one request
  bool lenient = false;                           // unknown fields are ignored instead of refused
  JsonLimits json = {};                           // of a body
};

// What both kinds of generation have in common.
struct Generation {
  SamplingParams sampling = {};
  std::optional<uint64_t> seed = {};       // a negative one in two's complement; unset: the server draws one
  int32_t n = 1;                           // choices for each prompt
  std::optional<int32_t> max_tokens = {};  // 0 is a value: evaluate the prompt; unset: what the context holds
  int32_t min_tokens = 0;                  // no stop token and no stop string before
  std::vector<std::string> stop = {};
  std::vector<int32_t> stop_token_ids = {};  // besides the checkpoint's
  bool ignore_eos = false;                   // the checkpoint's stop tokens are ordinary; stop_token_ids count
  int32_t num_logprobs = -1;                 // as in SampleRequest: -1 none, 0 the chosen token's, n also the n best
  bool stream = false;
  bool include_usage = false;     // of a stream: a last chunk without choices has the usage
  bool continuous_usage = false;  // of a stream: every chunk has the usage so far
  int32_t priority = 0;           // lower is served first
  std::string cache_salt = {};    // prompts share the cache only with prompts of the same salt
  std::string user = {};          // for logs
  std::vector<std::pair<std::string, std::string>> metadata = {};  // for logs
};

struct CompletionRequest {
  using Prompt = std::variant<std::string, std::vector<int32_t>>;  // text, or ids that all have a token

  std::string model = {};            // empty: not said
  std::vector<Prompt> prompts = {};  // one at least, none empty; choice i * n + k is the k-th of prompt i
  bool plain = false;                // control tokens in a text prompt are text
  bool echo = false;                 // the answer begins with the prompt, log-probabilities included
  Generation generation = {};
};

struct ChatCompletionRequest {
  std::string model = {};
  ChatRequest chat = {};            // tools are in the prompt also if tool_calls is off
  bool tool_calls = false;          // what looks like a call is one: there are tools and tool_choice is not "none"
  bool parallel_tool_calls = true;  // false: the generation ends after the first call
  Generation generation = {};
};

// Text or a chat to ids.
struct TokenizeRequest {
  std::string model = {};
  std::optional<std::string> prompt = {};  // exactly one of the two
  std::optional<ChatRequest> chat = {};
  bool plain = false;              // of a prompt: control tokens are text
  bool return_token_strs = false;  // the answer also holds each token's text
};

struct DetokenizeRequest {
  std::string model = {};
  std::vector<int32_t> tokens = {};  // ids that all have a token; possibly none
  bool skip_special_tokens = false;
};

struct ApplyTemplateRequest {
  std::string model = {};
  ChatRequest chat = {};
};

// Errors, all with OpenAI's error object: 400 for a body that is not JSON as base/json.h reads it (with the byte), or
// begins with a byte order mark, or is no object; for an unknown, ill-typed or unsupported field, by name; for values
// that contradict each other. 404 for a model that is not served. U+0000 is allowed in every text.
ApiResult<CompletionRequest> parse_completion_request(std::string_view body, const Defaults& defaults);
ApiResult<ChatCompletionRequest> parse_chat_completion_request(std::string_view body, const Defaults& defaults);
ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body, const Defaults& defaults);
ApiResult<DetokenizeRequest> parse_detokenize_request(std::string_view body, const Defaults& defaults);
ApiResult<ApplyTemplateRequest> parse_apply_template_request(std::string_view body, const Defaults& defaults);

}  // namespace kipp::openai
