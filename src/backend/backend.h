// The backend contract: what the engine asks of oracle, cpu, cuda and metal alike. A step is three calls: forward
// (enqueue a ragged batch), sample (its arguments may come later), collect. Nothing falls back silently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gguf/model_file.h"
#include "kipp/error.h"
#include "kipp/precision.h"
#include "kipp/sampling.h"
#include "model/operators.h"

namespace kipp {

// Class, token and KV alone decide the bits of a row (docs/numerics.md).
enum class RowClass : uint8_t {
  kPrompt,     // a token of the prompt, in any chunking
  kGenerated,  // a token that was sampled, also when it is recomputed or verified
};

// A run of consecutive positions of one sequence.
struct Span {
  int32_t slot;            // the sequence's index in the step: for device-side state; < Limits::max_sequences
  int32_t first_position;  // >= 0; KV of the positions before it is already in the blocks
  int32_t num_tokens;      // >= 1
  RowClass row_class;
  std::span<const int32_t> block_table;  // [ceil((first_position + num_tokens) / 32)] block ids
};

// An input token: an id, or the id that a row of the previous step sampled and that is still on the device.
struct TokenRef {
  int32_t token;
  int32_t from_row = -1;  // >= 0: index into the previous step's head_rows; token is ignored
};

struct Batch {
  std::span<const Span> spans;         // [S]
  std::span<const TokenRef> tokens;    // [T] the spans' tokens one after the other, T = Σ num_tokens
  std::span<const int32_t> head_rows;  // [R] ascending indices into tokens: rows that need logits
};

using SampleRow = SampleRequest;

struct RowResult {
  SampledToken token;
  bool finite = true;  // false: a logit was NaN or infinite; token.id is -1 then
};

struct Limits {
  int32_t max_tokens_per_step = 512;  // T of a batch
  int32_t max_sequences = 16;         // S of a batch
  int32_t max_head_rows = 512;        // R of a batch
  int32_t context = 4096;             // positions of one sequence
};

struct MemoryPlan {
  size_t weights_bytes;
  size_t workspace_bytes;
  size_t kv_block_bytes;  // one block, all layers
  size_t available_bytes;
};

// One KV block in canonical form: [layer][k|v][kv_head][32][head_dim] bf16.
struct KvBlock {
  std::vector<uint16_t> values;
};

// Every kernel class that the backend has, with how often it ran (also 0): gates and tests assert what they reach.
struct Report {
  std::string backend;  // "oracle", …
  std::vector<std::pair<std::string, uint64_t>> kernels;
  std::string device = {};  // what it runs on, where that is not the processor: name, driver, runtime
};

using StepId = uint64_t;

// What a stateless evaluation shows as it goes; an empty function is not called, and its work is not done.
struct StatelessObserver {
  // The residual stream, [num_tokens][hidden]: layer -1 is the embedding, then after layers 0 … num_layers-1.
  std::function<void(int32_t layer, std::span<const float> residual)> on_residual;
  std::function<void(std::span<const float> hidden)> on_final_hidden;  // [num_tokens][hidden] after the last norm
  std::function<void(int32_t row, std::span<const float> logits)> on_logits;  // [vocab]; rows 0 … num_tokens-1 in order
};

class Backend {
 public:
  virtual ~Backend() = default;

  // What loading would take, before anything is loaded. Errors: kUnsupported (a scheme this backend lacks).
  virtual Result<MemoryPlan> plan(const ModelFile& file, const Limits& limits) const = 0;
  // The file must outlive the backend. Step ids begin at 1 again. Errors: kCapacity with needed and available bytes.
  virtual Result<void> load(const ModelFile& file, const Limits& limits, int32_t num_blocks) = 0;
  // A step is forward, then sample if ids are wanted, then collect. At most two steps are uncollected: while one
  // computes, the next may be enqueued. A block is free for other sequences only once the last step that names it is
  // collected. Errors of the device itself come from collect, or from the next call that waits for it.
  //
  // Enqueues a step. Errors: kInvalidArgument naming the offending index.
  virtual Result<StepId> forward(const Batch& batch) = 0;
  // Enqueues the draws of the latest step's head rows; before the next forward, whose tokens may refer to them
  // (TokenRef::from_row). A step that was collected already is to be collected once more. rows: [R]. Errors:
  // kInvalidArgument (another step, drawn already, the count, parameters).
  virtual Result<void> sample(StepId step, std::span<const SampleRow> rows) = 0;
  // Waits for the step, which then needs no further call. results: [R], or empty if nothing was sampled.
  virtual Result<void> collect(StepId step, std::span<RowResult> results) = 0;
  // Raw logits of head row `row` of a step whose logits still stand (until the next forward). out: [vocab].
  virtual Result<void> logits(StepId step, int32_t row, std::span<float> out) = 0;
  // One pass over a whole prompt with contiguous K and V: no pool, block table or step. The other side of Phase 2, and
  // Phase 1's per-layer taps. Errors: kInvalidArgument (empty, a bad id), kCapacity (longer than Limits::context).
  virtual Result<void> evaluate_stateless(std::span<const int32_t> tokens, const StatelessObserver& observer) = 0;
  virtual Result<void> copy_blocks(std::span<const int32_t> from, std::span<const int32_t> to) = 0;
  // Errors: kInvalidArgument (block, size); kUnsupported for a pool whose elements the canonical form would round.
  virtual Result<void> read_block(int32_t block, KvBlock& out) const = 0;
  virtual Result<void> write_block(int32_t block, const KvBlock& in) = 0;
  // Tokens of a step that use the backend well: more at a time gain little, and make a long prompt harder to interrupt.
  virtual int32_t preferred_tokens_per_step() const = 0;
  virtual Report report() const = 0;
  // The operators that this backend really runs, for tests/ops.
  virtual const OperatorTable& operators() const = 0;
};

struct BackendOptions {
  int32_t num_threads = 0;  // 0: the processors this process may use
  int32_t device = 0;       // cuda: which GPU
  // Test switch of the numerics contract: false keeps K and V in FP32, to show what their BF16 rounding costs.
  bool round_kv = true;
  Precision precision = Precision::kDefault;
  std::string isa = {};  // cpu: an instruction set by name; empty: that of KIPP_CPU_ISA, or the machine's best
  // Bytes of weights uploaded so far and in all, where loading uploads any; may be empty.
  std::function<void(uint64_t uploaded, uint64_t size)> on_uploaded = {};
};

// Finds a backend by name: linked in, or (cuda) a shared object beside the program or in the folder that KIPP_BACKENDS
// names. Errors: kNotFound naming what this build has, kUnsupported (an object that cannot be loaded), those of the
// backend.
Result<std::unique_ptr<Backend>> create_backend(std::string_view name, const BackendOptions& options);
// Those linked in, and those whose object is there; whether the machine has a GPU only create_backend says.
std::vector<std::string> available_backends();

}  // namespace kipp
