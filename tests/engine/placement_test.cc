// Where blocks lie, what unused memory holds, and how many threads work must not change a bit.
#include "backend/backend.h"
#include "engine/twin.h"

namespace kipp {
namespace {

constexpr size_t kLength = 104;  // four blocks
constexpr size_t kPrompt = 100;  // then single tokens
constexpr size_t kFirstChunk = 50;

class PlacementTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    tokens_ = draw_tokens(kLength, 20);
    const auto model = open_twin();
    ASSERT_NE(model, nullptr);
    expected_ = run(*model);
  }
  void SetUp() override { ASSERT_EQ(expected_.size(), rows_.size() + kLength - kPrompt); }

  // A prompt in two chunks, with logits around the borders of blocks, then single tokens.
  static std::vector<Logits> run(Model& model) {
    Session session = *model.new_session();
    EXPECT_TRUE(session.append(std::span(tokens_).first(kFirstChunk)));
    const Model::StepRequest request{&session, std::span(tokens_).subspan(kFirstChunk, kPrompt - kFirstChunk), rows_};
    auto logits = model.step_all_logits({&request, 1});
    EXPECT_TRUE(logits);
    std::vector<Logits> all = logits ? std::move(logits->front()) : std::vector<Logits>{};
    for (size_t i = kPrompt; i < kLength; ++i) {
      EXPECT_TRUE(session.append(std::span(tokens_).subspan(i, 1), true));
      all.emplace_back(session.logits().begin(), session.logits().end());
    }
    return all;
  }

  static void check(Model& model) {
    const auto found = run(model);
    ASSERT_EQ(found.size(), expected_.size());
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_TRUE(same_bits(found[i], expected_[i])) << "row " << i;
    }
  }

  static inline const std::vector<int32_t> rows_ = {0, 13, 14, 45, 46, 49};  // in the second chunk
  static inline std::vector<int32_t> tokens_;
  static inline std::vector<Logits> expected_;
};

// Every value of every block NaN, as memory never written might be.
void poison_pool(Model& model, int32_t num_blocks) {
  KvBlock block;
  ASSERT_TRUE(model.backend().read_block(0, block));
  std::fill(block.values.begin(), block.values.end(), uint16_t{0x7FDE});
  for (int32_t i = 0; i < num_blocks; ++i) {
    ASSERT_TRUE(model.backend().write_block(i, block));
  }
}

TEST_F(PlacementTest, ScrambledTablesInPoisonedMemoryGiveTheSameBits) {
  for (const uint64_t seed : {1U, 2U, 3U}) {
    ModelOptions options = twin_options();
    options.placement_seed = seed;
    const auto model = open_twin(options);
    ASSERT_NE(model, nullptr);
    poison_pool(*model, 16);
    Session fragment = *model->new_session();  // takes blocks first, so that the free ones are not the lowest
    ASSERT_TRUE(fragment.append(draw_tokens(40, seed)));
    check(*model);
  }
}

TEST_F(PlacementTest, TheNumberOfThreadsDoesNotMatter) {
  for (int32_t num_threads = 1; num_threads <= 5; ++num_threads) {
    ModelOptions options = twin_options();
    options.num_threads = num_threads;
    const auto model = open_twin(options);
    ASSERT_NE(model, nullptr);
    check(*model);
  }
}

TEST_F(PlacementTest, ASequenceGoesOnFromCopiedBlocks) {
  const auto model = open_twin();
  ASSERT_NE(model, nullptr);
  poison_pool(*model, 16);
  Session source = *model->new_session();
  ASSERT_TRUE(source.append(std::span(tokens_).first(70)));
  Session target = *model->new_session();
  ASSERT_TRUE(target.append(draw_tokens(70, 21)));
  ASSERT_TRUE(model->backend().copy_blocks(source.block_table(), target.block_table()));
  ASSERT_TRUE(target.append(std::span(tokens_).subspan(70, kPrompt - 70)));
  EXPECT_TRUE(same_bits(target.logits(), expected_[rows_.size() - 1]));
}

}  // namespace
}  // namespace kipp
