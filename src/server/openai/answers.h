// Answers of the HTTP interface as JSON: whole ones as a value, streamed ones as server-sent events. Pure functions of
// what they are given; ids and times are the caller's. docs/server.md describes every field.
//
// Whoever calls holds bytes back: every text and event given here is made of whole characters (StreamDecoder and
// OutputParser see to it), so that what is written is valid UTF-8 and a character that spans tokens comes once. Only
// TokenLogprob takes the raw bytes of a token.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "kipp/chat_output.h"
#include "kipp/error.h"
#include "kipp/sampling.h"
#include "kipp/tokenizer.h"
#include "server/openai/api_error.h"
#include "server/openai/requests.h"

namespace kipp::openai {

// The same on every chunk of an answer.
struct Identity {
  std::string id = {};  // "chatcmpl-…" or "cmpl-…"
  int64_t created = 0;  // seconds since 1970
  std::string model = {};
  std::string system_fingerprint = {};
};

struct Usage {
  int64_t prompt_tokens = 0;      // each prompt once, whatever n is
  int64_t completion_tokens = 0;  // of all choices
  int64_t cached_tokens = 0;      // of the prompt tokens: not evaluated again
  int64_t reasoning_tokens = 0;   // of the completion tokens
};

struct Timings {
  int64_t cached_tokens = 0;
  int64_t prompt_tokens = 0;  // evaluated
  double prompt_ms = 0;
  int64_t predicted_tokens = 0;
  double predicted_ms = 0;
};

// Why a choice ended. kStop after a tool call is written "tool_calls".
enum class Finish : uint8_t { kStop, kLength, kAbort, kError };

struct TokenLogprob {
  std::string bytes = {};                               // the token's: not always whole characters
  std::optional<float> logprob = {};                    // unset: a prompt's first token, which nothing predicts
  std::vector<std::pair<std::string, float>> top = {};  // bytes and log-probability of the best tokens
  bool in_text = true;  // false: a control token, which the text leaves out, so that offsets do not count it
};
// Errors: those of Tokenizer::token_bytes.
Result<TokenLogprob> token_logprob(const SampledToken& token, const Tokenizer& tokenizer);

// A token's text: itself if it is whole characters, else "bytes:\xf0\x9f", so that no two tokens have the same.
std::string token_text(std::string_view bytes);

// Where the next token of /v1/completions begins, in characters from the start of the answer's text. A token that goes
// on with a character begins where that does.
struct TextOffset {
  int64_t characters = 0;
};

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}: four arrays of equal length. The chosen token is among
// the best whatever their number. Moves the offset on.
Json completion_logprobs_json(std::span<const TokenLogprob> tokens, TextOffset& offset);
// {"content": [{"token", "logprob", "bytes", "top_logprobs"}], "refusal": null}
Json chat_logprobs_json(std::span<const TokenLogprob> tokens);

Json usage_json(const Usage& usage);
Json timings_json(const Timings& timings);  // llama.cpp's names

// Whole answers.
struct CompletionChoice {
  std::string text = {};  // with echo the prompt and the output
  std::optional<std::vector<TokenLogprob>> logprobs = {};
  Finish finish = Finish::kStop;
};
struct ChatChoice {
  ChatMessage message = {};  // of append_event()s or parse_output()
  std::optional<std::vector<TokenLogprob>> logprobs = {};
  Finish finish = Finish::kStop;
};
Json completion_json(const Identity& identity, std::span<const CompletionChoice> choices, const Usage& usage,
                     const Timings* timings);
Json chat_completion_json(const Identity& identity, std::span<const ChatChoice> choices, const Usage& usage,
                          const Timings* timings);

// "call_…": the same for a whole and a streamed answer.
std::string tool_call_id(const Identity& identity, int32_t choice, int32_t call_idx);

// Server-sent events: "data: …\n\n".
std::string sse_event(const Json& data);
std::string sse_error(const ApiError& error);                     // in a stream that has begun; it ends there
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";  // the last event of a stream that went well

struct StreamOptions {
  Identity identity = {};
  bool logprobs = false;
  bool include_usage = false;     // every chunk has "usage": null, the one of stream_usage() the numbers
  bool continuous_usage = false;  // beside include_usage: every chunk has the numbers so far

  // Chunks of text differ in their text alone.
  bool has_plain_chunks() const { return !logprobs && !(include_usage && continuous_usage); }
};
StreamOptions stream_options(Identity identity, const Generation& generation);

// The event of a chunk of which only the text changes: what is before and behind it is written once, since a server
// writes such an event for every token of every stream.
class TextFrame {
 public:
  static constexpr std::string_view kText = "\x01";  // where the text goes
  bool is_made() const { return !after_.empty(); }
  // chunk: has kText as a string, and no such one behind that.
  void make(const Json& chunk);
  std::string event(std::string_view text) const;  // sse_event() of the chunk with this text

 private:
  std::string before_;
  std::string after_;
};

// The chunks of one choice of a stream; the options must outlive them. The usage given is that of the whole
// answer so far. Log-probabilities of tokens that bring no text come with the next chunk; finish() leaves none out.
class CompletionStream {
 public:
  CompletionStream(const StreamOptions& options, int32_t choice) : options_(&options), choice_(choice) {}
  // With echo, first of all the prompt's text and tokens. Nothing for an empty text.
  std::string push(std::string_view text, std::vector<TokenLogprob> tokens, const Usage& usage);
  std::string finish(Finish finish, const Usage& usage, const Timings* timings);

 private:
  Json chunk(std::string_view text, Json finish_reason, const Usage& usage);
  const StreamOptions* options_;
  int32_t choice_;
  TextFrame frame_;
  TextOffset offset_;
  std::vector<TokenLogprob> held_;
};

class ChatStream {
 public:
  ChatStream(const StreamOptions& options, int32_t choice) : options_(&options), choice_(choice) {}
  // The role: once, before anything else; push() and finish() make up for it.
  std::string begin(const Usage& usage);
  std::string push(std::span<const OutputEvent> events, std::vector<TokenLogprob> tokens, const Usage& usage);
  std::string finish(Finish finish, const Usage& usage, const Timings* timings);

 private:
  Json chunk(Json delta, Json finish_reason, const Usage& usage);
  std::string text_event(const char* field, TextFrame& frame, const std::string& text, const Usage& usage);
  Json tool_call_delta(const OutputEvent& event) const;
  const StreamOptions* options_;
  int32_t choice_;
  TextFrame content_;
  TextFrame reasoning_;
  bool begun_ = false;
  bool has_calls_ = false;
  std::vector<TokenLogprob> held_;
};

// After the last choice: the chunk without choices, if it was asked for. Then comes kSseDone.
std::string stream_usage(const StreamOptions& options, bool is_chat, const Usage& usage);

// What the server says about itself.
struct ModelCard {
  std::string id = {};
  int64_t created = 0;
  int32_t context = 0;
};
Json models_json(std::span<const ModelCard> models);
Json model_json(const ModelCard& model);
ApiError no_such_model(std::string_view id);  // 404

struct BuildInfo {
  std::string version = {};
  std::string commit = {};
  std::string compiler = {};
};
Json version_json(const BuildInfo& build);

struct GateStatus {
  std::string gate = {};    // "Phase 1"
  std::string status = {};  // "green", "not run", …
  std::string record = {};  // where its numbers are; empty: nowhere
};
struct Props {
  BuildInfo build = {};
  std::string model = {};
  std::string checkpoint = {};
  std::string revision = {};
  std::string scheme = {};
  std::string artifact_sha256 = {};
  bool synthetic = false;
  std::string backend = {};
  int32_t max_sequences = 0;
  std::vector<std::pair<std::string, std::string>> kernels = {};  // operator, kernel
  std::vector<GateStatus> gates = {};
};
// Also the effective defaults of every sampling field and the limits of a request.
Json props_json(const Props& props, const Defaults& defaults);

// What clients that count tokens with /tokenize ask first; vLLM's names.
struct TokenizerInfo {
  std::string eos_token = {};
  std::string pad_token = {};
  int32_t context = 0;
};
Json tokenizer_info_json(const TokenizerInfo& info);

// token_strs: as token_text() makes them; nullptr where they were not asked for.
Json tokenize_json(std::span<const int32_t> ids, int32_t context, const std::vector<std::string>* token_strs);
Json detokenize_json(std::string text);
Json apply_template_json(const RenderedPrompt& prompt);

}  // namespace kipp::openai
