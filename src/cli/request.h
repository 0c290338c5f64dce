// One request of `kipp run`: what to evaluate and how to go on, from flags or from a JSON line; and its execution.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "cli/chat_flags.h"
#include "cli/sampling_flags.h"
#include "engine/generate.h"
#include "kipp/engine.h"
#include "kipp/error.h"

namespace kipp::cli {

struct Request {
  std::vector<int32_t> prompt;
  GenerateOptions options;
  int32_t num_top = 0;   // show the best candidates for the next token
  bool generate = true;  // false: evaluate the prompt only
  bool is_chat = false;  // the prompt is a rendered chat: the answer is a message
};

// What the command line says, for every request of the run.
struct RequestDefaults {
  SamplingChoices sampling;
  ChatFlags chat;
  int32_t decode = -1;  // tokens at most; < 0: not given
  int32_t num_top = 0;
  int32_t num_logprobs = -1;      // as in SampleRequest
  std::vector<std::string> stop;  // as in GenerateOptions
  bool plain = false;             // control tokens in a raw prompt are text
  bool apply_template = false;
};

struct Candidate {
  int32_t id;
  float logit;
};

struct Answer {
  std::vector<Candidate> top;  // [num_top] descending, ties by ascending id
  GenerateResult result;
  std::vector<SampledToken> sampled;  // [result.ids] with num_logprobs >= 0, else empty
};

// What is shown while a request runs; either may be empty.
struct RequestEvents {
  std::function<Result<void>(const std::vector<Candidate>& top)> on_top;
  std::function<Result<void>(std::string_view text)> on_text;
};

// How to generate: what the artifact records, what the choices say, the command line's limits. The seed is not set.
GenerateOptions generate_options(const Model& model, const RequestDefaults& defaults, const SamplingChoices& sampling);

// A raw prompt, or with apply_template a user's message. Errors: those of Tokenizer::encode, parse_chat_request,
// render_chat.
Result<Request> request_of_prompt(const Model& model, std::string_view prompt, const RequestDefaults& defaults);
// A JSON line: "prompt" or "messages", and the optional fields of docs/cli.md. seed: used if neither line nor flags
// name one. Errors: also kInvalidArgument naming the field.
Result<Request> request_of_json(const Model& model, const Json& object, const RequestDefaults& defaults, uint64_t seed);

// Resets the session and runs the request; ends early, with kCancelled, after an interrupt. Errors: those of generate()
// and of the events.
Result<Answer> run_request(Model& model, Session& session, const Request& request, const RequestEvents& events);

// "stop" of a JSON object: a string or a list of them. Errors: kInvalidArgument; those of validate_stop_strings.
Result<std::optional<std::vector<std::string>>> stop_field(const Json& object);

// The count best candidates among the tokens (padding rows left out). Errors: kNumerical (a logit is not finite).
Result<std::vector<Candidate>> best_candidates(std::span<const float> logits, int32_t num_tokens, int32_t count);
// A token's bytes as a quoted string; bytes that are not whole characters as \xNN. Errors: those of Tokenizer.
Result<std::string> quoted_piece(const Tokenizer& tokenizer, int32_t id);

}  // namespace kipp::cli
