// Seeded faults: bugs that tests must kill (docs/seeded-faults.md). A build with KIPP_SEEDED_FAULTS plants the one that
// the environment variable KIPP_SEEDED_FAULT names; in every other build seeded() is a constant false and a hook no
// code. A hook is one line where such a bug would really be: `if (seeded(Fault::kStaleReset)) return;`
#pragma once

#include <cstdint>

namespace kipp {

// X(enumerator, name, what goes wrong). The only list: tools/run_seeded_faults.py reads it here.
#define KIPP_SEEDED_FAULT_LIST(X)                                                                            \
  X(kBlockReadOffByOne, "block_read_off_by_one", "attention reads the K and V of the block before")          \
  X(kBlockRollover, "block_rollover", "the first position of a block lands in the block before")             \
  X(kSlotOffByOne, "slot_off_by_one", "K and V are written one slot too early within their block")           \
  X(kKeyValueSwap, "key_value_swap", "keys are stored as values and values as keys")                         \
  X(kKvRoundingSkipped, "kv_rounding_skipped", "K and V are cut to BF16 instead of rounded")                 \
  X(kKvLayersShared, "kv_layers_shared", "every layer has the K and V of the first")                         \
  X(kBlockCopyHalf, "block_copy_half", "copying a block copies its first half")                              \
  X(kBlockHandedOutTwice, "block_handed_out_twice", "a freed block is handed out twice")                     \
  X(kDroppedTailBlock, "dropped_tail_block", "attention ignores a last block that is not full")              \
  X(kDroppedTailRow, "dropped_tail_row", "K and V of a chunk's last token are not written")                  \
  X(kDroppedTailLanes, "dropped_tail_lanes", "a dot product ignores the terms after the last 16")            \
  X(kStalePrefix, "stale_prefix", "truncation keeps the rest of the last block: tokens, K and V")            \
  X(kStaleReset, "stale_reset", "a reset session goes on behind its old tokens")                             \
  X(kFailedStepKeepsBlocks, "failed_step_keeps_blocks", "a refused request keeps the blocks it took")        \
  X(kRopeOffByOne, "rope_off_by_one", "every rotation is that of the next position")                         \
  X(kRopeChunkRelative, "rope_chunk_relative", "positions of rotations start at 0 in every chunk")           \
  X(kMaskSeesFuture, "mask_sees_future", "a token attends to the next one of its chunk")                     \
  X(kMaskWithoutSelf, "mask_without_self", "a token does not attend to itself")                              \
  X(kGroupInterleaved, "group_interleaved", "query heads take KV heads in turn instead of in groups")        \
  X(kNormScaleOffByOne, "norm_scale_off_by_one", "RMSNorm scales each channel by the next one's weight")     \
  X(kKeyNormSwapped, "key_norm_swapped", "the per-head norm of K has the weights of Q's")                    \
  X(kScaleOffByOne, "scale_off_by_one", "a block of quantised weights has the scale of the block before")    \
  X(kGateUpSwapped, "gate_up_swapped", "the gate projection is bound as up projection and back")             \
  X(kEmbeddingRowOffByOne, "embedding_row_off_by_one", "a token has the embedding of the id before")         \
  X(kHeadRowsSwapped, "head_rows_swapped", "the logits of a step's rows come in reverse order")              \
  X(kRowClassIgnored, "row_class_ignored", "generated tokens are evaluated as tokens of a prompt")           \
  X(kPaddingSampled, "padding_sampled", "padding rows of the vocabulary can be sampled")                     \
  X(kSeedIgnored, "seed_ignored", "every seed draws the same")                                               \
  X(kDrawPositionOffByOne, "draw_position_off_by_one", "a draw uses the random bits of the position before") \
  X(kStopTokenMissed, "stop_token_missed", "only the first stop token of an artifact counts")

enum class Fault : uint8_t {
  kNone,
#define KIPP_FAULT_ENUMERATOR(enumerator, name, what) enumerator,
  KIPP_SEEDED_FAULT_LIST(KIPP_FAULT_ENUMERATOR)
#undef KIPP_FAULT_ENUMERATOR
};

#ifdef KIPP_SEEDED_FAULTS
// The fault of that name; null is kNone. An unknown name ends the process with a list of those known.
Fault fault_named(const char* name);
// That of KIPP_SEEDED_FAULT, read once, before main.
extern const Fault kSeededFault;

inline bool seeded(Fault fault) {
  return fault == kSeededFault;
}
#else
constexpr bool seeded(Fault /*fault*/) {
  return false;
}
#endif

}  // namespace kipp
