// The compiled-in registry: the only growth point for model support. Source of every value: the checkpoint's own
// config.json and generation_config.json at the pinned revision. Mirrored by tools/checkpoints.py; a test compares
// them.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace kipp {

enum class Variant { kBase, kInstruct, kInstruct2507, kThinking2507 };

constexpr std::string_view variant_name(Variant variant) {
  switch (variant) {
    case Variant::kBase: return "base";
    case Variant::kInstruct: return "instruct";
    case Variant::kInstruct2507: return "instruct-2507";
    case Variant::kThinking2507: return "thinking-2507";
  }
  return "";
}

// Facts of the family: the same for every entry.
inline constexpr int32_t kNumKvHeads = 8;
inline constexpr int32_t kHeadDim = 128;
inline constexpr int32_t kVocabSize = 151936;        // rows of the embedding and of the head
inline constexpr int32_t kNumTokens = 151669;        // ids from here on are padding rows without a token
inline constexpr int32_t kFirstThinkToken = 151665;  // of the last four, which a base checkpoint's tokenizer lacks
inline constexpr int32_t kNumMerges = 151387;
inline constexpr float kRmsNormEpsilon = 1e-6F;
inline constexpr int32_t kEndOfText = 151643;  // <|endoftext|>
inline constexpr int32_t kImStart = 151644;    // <|im_start|>
inline constexpr int32_t kImEnd = 151645;      // <|im_end|>

struct Checkpoint {
  std::string_view id;
  std::string_view repository;
  std::string_view revision;  // commit of the repository; for the demo the first 40 digits of its weights' sha256
  Variant variant;
  int32_t num_layers;
  int32_t hidden;
  int32_t ffn;
  int32_t num_query_heads;  // the attention width is num_query_heads × 128, not the hidden width
  int32_t context;
  float rope_theta;
  bool tied_head;              // the output head is the token embedding
  bool isolates_think_tokens;  // <think>, </think>, <tool_response>, </tool_response> are added tokens
  bool is_demo;                // bundled, trained by tools/demo; not a Qwen release
};

// clang-format off
inline constexpr std::array kCheckpoints = {
    Checkpoint{"qwen3-0.6b-base", "Qwen/Qwen3-0.6B-Base", "da87bfb608c14b7cf20ba1ce41287e8de496c0cd", Variant::kBase, 28, 1024, 3072, 16, 32768, 1e6F, true, false, false},
    Checkpoint{"qwen3-0.6b", "Qwen/Qwen3-0.6B", "c1899de289a04d12100db370d81485cdf75e47ca", Variant::kInstruct, 28, 1024, 3072, 16, 40960, 1e6F, true, true, false},
    Checkpoint{"qwen3-1.7b-base", "Qwen/Qwen3-1.7B-Base", "ea980cb0a6c2ae4b936e82123acc929f1cec04c1", Variant::kBase, 28, 2048, 6144, 16, 32768, 1e6F, true, false, false},
    Checkpoint{"qwen3-1.7b", "Qwen/Qwen3-1.7B", "70d244cc86ccca08cf5af4e1e306ecf908b1ad5e", Variant::kInstruct, 28, 2048, 6144, 16, 40960, 1e6F, true, true, false},
    Checkpoint{"qwen3-4b-base", "Qwen/Qwen3-4B-Base", "906bfd4b4dc7f14ee4320094d8b41684abff8539", Variant::kBase, 36, 2560, 9728, 32, 32768, 1e6F, true, false, false},
    Checkpoint{"qwen3-4b", "Qwen/Qwen3-4B", "1cfa9a7208912126459214e8b04321603b3df60c", Variant::kInstruct, 36, 2560, 9728, 32, 40960, 1e6F, true, true, false},
    Checkpoint{"qwen3-4b-instruct-2507", "Qwen/Qwen3-4B-Instruct-2507", "cdbee75f17c01a7cc42f958dc650907174af0554", Variant::kInstruct2507, 36, 2560, 9728, 32, 262144, 5e6F, true, true, false},
    Checkpoint{"qwen3-4b-thinking-2507", "Qwen/Qwen3-4B-Thinking-2507", "768f209d9ea81521153ed38c47d515654e938aea", Variant::kThinking2507, 36, 2560, 9728, 32, 262144, 5e6F, true, true, false},
    Checkpoint{"qwen3-8b-base", "Qwen/Qwen3-8B-Base", "49e3418fbbbca6ecbdf9608b4d22e5a407081db4", Variant::kBase, 36, 4096, 12288, 32, 32768, 1e6F, false, false, false},
    Checkpoint{"qwen3-8b", "Qwen/Qwen3-8B", "b968826d9c46dd6066d109eabc6255188de91218", Variant::kInstruct, 36, 4096, 12288, 32, 40960, 1e6F, false, true, false},
    Checkpoint{"qwen3-14b-base", "Qwen/Qwen3-14B-Base", "0b0bd3732e2c374d483664439ea334928b65f304", Variant::kBase, 40, 5120, 17408, 40, 32768, 1e6F, false, false, false},
    Checkpoint{"qwen3-14b", "Qwen/Qwen3-14B", "40c069824f4251a91eefaf281ebe4c544efd3e18", Variant::kInstruct, 40, 5120, 17408, 40, 40960, 1e6F, false, true, false},
    Checkpoint{"qwen3-32b", "Qwen/Qwen3-32B", "9216db5781bf21249d130ec9da846c4624c16137", Variant::kInstruct, 64, 5120, 25600, 64, 40960, 1e6F, false, true, false},
    Checkpoint{"kipp-demo", "kipp/demo", "be1cab85afa949e88e9bdb2a4c27201ff0567e91", Variant::kInstruct, 8, 192, 512, 16, 2048, 1e6F, true, true, true},
};
// clang-format on

// The entry with this id, or nullptr.
constexpr const Checkpoint* find_checkpoint(std::string_view id) {
  for (const Checkpoint& checkpoint : kCheckpoints) {
    if (checkpoint.id == id) {
      return &checkpoint;
    }
  }
  return nullptr;
}

// Tokens that end a generation: base stops on <|endoftext|>, every other variant on <|im_end|> and <|endoftext|>.
inline constexpr std::array<int32_t, 1> kBaseStopTokens = {kEndOfText};
inline constexpr std::array<int32_t, 2> kChatStopTokens = {kImEnd, kEndOfText};

}  // namespace kipp
