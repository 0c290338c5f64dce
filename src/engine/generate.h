// The generation loop of one sequence: evaluate a prompt, then draw, show and append until a stop token, the limit or
// the caller ends it. The command line uses it directly; the scheduler's loop over many sequences keeps its rules.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kipp/engine.h"
#include "kipp/error.h"
#include "kipp/sampling.h"
#include "kipp/tokenizer.h"

namespace kipp {

enum class FinishReason : uint8_t {
  kStop,       // a stop token was drawn, which is in neither ids nor text; or a stop string, which is not in the text
  kLength,     // max_tokens, or the context is full
  kCancelled,  // the caller ended it
};
const char* finish_reason_name(FinishReason reason);  // "stop", "length", "cancelled"

struct GenerateOptions {
  SamplingParams sampling = {};
  uint64_t seed = 0;
  int32_t choice = 0;         // index of the choice of a request with n > 1
  int32_t max_tokens = -1;    // tokens at most; < 0: as many as the context holds
  int32_t num_logprobs = -1;  // as in SampleRequest
  std::vector<int32_t> stop_token_ids = {};
  std::vector<std::string> stop = {};  // strings that end the text before them: stop_matcher.h
  bool skip_special_tokens = true;     // control tokens are in ids but not in text
};

// One drawn token, as the callback sees it.
struct GenerateStep {
  const SampledToken& token;
  std::string_view text;  // what may be shown from this token on: whole characters that begin no stop string
};

// Called before each piece of the prompt (step is null) and after each token. False ends the generation. May be empty.
using GenerateCallback = std::function<bool(const GenerateStep* step)>;

struct GenerateTimings {
  int32_t prompt_tokens = 0;  // evaluated by this call
  int32_t decode_steps = 0;   // tokens evaluated one by one: one less than were drawn
  double prefill_seconds = 0;
  double decode_seconds = 0;  // drawing included
};

struct GenerateResult {
  std::vector<int32_t> ids;
  std::string text;       // equals the callback's pieces joined, and what was incomplete at the end as U+FFFD
  std::string last_text;  // that end, and what was held back as a possible stop string: no callback has seen it
  FinishReason finish_reason = FinishReason::kLength;
  int32_t stop_token = -1;    // with kStop: the token that was drawn, or -1 if a string ended the text
  std::string stop_string;    // with kStop: the string that ended the text, or empty
  bool context_full = false;  // with kLength: the context was the limit, not max_tokens
  GenerateTimings timings;
};

// Appends prompt to the session and generates. An empty prompt continues from the session's logits. Afterwards the
// session holds its old tokens, the prompt and, of ids, what had to be evaluated: all of them after a stop token (it
// was drawn from the last one's logits), all but the last otherwise. Cancelled while the prompt was evaluated, it holds
// the part that was; after an error, what was evaluated before it. Session::tokens() says which.
// Errors: kInvalidArgument (nothing to predict from; sampling parameters; stop strings), kCapacity naming the tokens
// held, the prompt's and the context's; those of Session::append and Session::sample.
Result<GenerateResult> generate(Model& model, Session& session, std::span<const int32_t> prompt,
                                const GenerateOptions& options, const GenerateCallback& callback);

}  // namespace kipp
