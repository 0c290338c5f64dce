// BPE against a direct transcription of its definition, on random vocabularies; and its work, counted, against length.
#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "tokenizer/qwen_tokenizer.h"

namespace kipp {
namespace {

using testing::byte_tokens;
using testing::TokenizerData;
using Ids = std::vector<int32_t>;

// A vocabulary with `num_merges` random merges over the letters a, b, c.
TokenizerData random_vocabulary(std::mt19937& random, size_t num_merges) {
  TokenizerData data = byte_tokens();
  std::vector<std::string> parts = {"a", "b", "c"};
  std::set<std::string> known(parts.begin(), parts.end());
  while (data.merges.size() < num_merges) {
    const std::string left = parts[random() % parts.size()];
    const std::string right = parts[random() % parts.size()];
    if (left.size() + right.size() > 40 || !known.insert(left + right).second) {
      continue;
    }
    parts.push_back(left + right);
    data.tokens.push_back(left + right);
    data.types.push_back(TokenType::kNormal);
    data.merges.push_back(left + " " + right);
  }
  return data;
}

struct Tables {
  explicit Tables(TokenizerData own) : data(std::move(own)), source(data.source()), index(source.tokens) {
    vocabulary = Vocabulary::build(source, index).value();
    merges = MergeTable::build(source.merges, source.tokens, vocabulary, index).value();
  }
  Tables(const Tables&) = delete;
  TokenizerData data;
  TokenizerSource source;
  TokenIndex index;
  Vocabulary vocabulary;
  MergeTable merges;
};

// The definition: while any pair has a rank, merge the leftmost pair of the lowest one.
Ids encode_by_definition(const Tables& tables, const std::string& word) {
  std::map<std::string, size_t> ranks;
  for (size_t rank = 0; rank < tables.source.merges.size(); ++rank) {
    ranks.emplace(tables.source.merges[rank], rank);
  }
  std::vector<std::string> symbols;
  for (const char c : word) {
    symbols.emplace_back(1, c);
  }
  while (true) {
    size_t best_rank = ranks.size();
    size_t best = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks.find(symbols[i] + " " + symbols[i + 1]);
      if (found != ranks.end() && found->second < best_rank) {
        best_rank = found->second;
        best = i;
      }
    }
    if (best_rank == ranks.size()) {
      break;
    }
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& symbol : symbols) {
    ids.push_back(tables.index.find(symbol));
  }
  return ids;
}

std::string random_word(std::mt19937& random, size_t size) {
  std::string word;
  while (word.size() < size) {
    word.append(random() % 8 == 0 ? random() % 30 : 1, static_cast<char>('a' + random() % 3));
  }
  word.resize(size);
  return word;
}

TEST(Bpe, FollowsTheDefinitionAtEveryLength) {
  std::mt19937 random(1);
  for (int round = 0; round < 40; ++round) {
    const Tables tables(random_vocabulary(random, 1 + random() % 60));
    const Bpe bpe(tables.merges, tables.vocabulary.byte_ids());
    BpeWorkspace workspace;
    for (size_t size = 1; size <= 150; size += 1 + random() % 4) {
      const std::string word = random_word(random, size);
      Ids ids;
      bpe.encode(word, workspace, ids);
      ASSERT_EQ(ids, encode_by_definition(tables, word)) << word;
    }
  }
}

// Chunks far smaller than real ones, so that seams are everywhere and some do not fit.
TEST(Bpe, ChunksOfALongWordFitTogether) {
  std::mt19937 random(2);
  uint64_t num_whole = 0;
  for (int round = 0; round < 300; ++round) {
    const Tables tables(random_vocabulary(random, 1 + random() % 60));
    const uint32_t size = 4 + static_cast<uint32_t>(random() % 60);
    const uint32_t margin = 1 + static_cast<uint32_t>(random()) % (size - 1);
    const Bpe bpe(tables.merges, tables.vocabulary.byte_ids(), {.size = size, .margin = margin});
    BpeWorkspace workspace;
    const std::string word = random_word(random, 65 + random() % 300);
    Ids ids = {7};
    bpe.encode(word, workspace, ids);
    Ids expected = encode_by_definition(tables, word);
    expected.insert(expected.begin(), 7);
    ASSERT_EQ(ids, expected) << word;
    num_whole += workspace.num_whole;
  }
  EXPECT_GT(num_whole, 10U);  // the way back to the whole word is taken too
  EXPECT_LT(num_whole, 290U);
}

const Tables& qwen_tables() {
  static const Tables tables(testing::read_qwen_tokenizer(false));
  return tables;
}

uint64_t steps_for(const std::string& word) {
  const Bpe bpe(qwen_tables().merges, qwen_tables().vocabulary.byte_ids());
  BpeWorkspace workspace;
  Ids ids;
  bpe.encode(word, workspace, ids);
  return workspace.num_steps();
}

TEST(Bpe, WorkIsLinearInTheLengthOfAWord) {
  std::mt19937 random(3);
  const auto repeat = [](const std::string& unit, size_t size) {
    std::string word;
    while (word.size() < size) {
      word += unit;
    }
    return word;
  };
  std::string letters;
  std::string bytes;
  for (int i = 0; i < 1'000'000; ++i) {
    letters.push_back(static_cast<char>('a' + random() % 26));
    bytes.push_back(static_cast<char>(random() % 256));
  }
  for (const std::string& word :
       {repeat("a", 1'000'000), repeat(" ", 1'000'000), repeat("\xF0\x9F\x98\x80", 1'000'000), letters, bytes,
        repeat("aA", 1'000'000), repeat("=", 1'000'000), repeat("\xE5\x93\x88", 1'000'000)}) {
    const uint64_t tenth = steps_for(word.substr(0, word.size() / 10));
    const uint64_t whole = steps_for(word);
    EXPECT_LE(whole, 11 * tenth) << word.substr(0, 8);
    EXPECT_LE(whole, 25 * word.size()) << word.substr(0, 8);  // 18 bits of a rank, and the pushes of two passes
  }
}

// Just past the length at which the quadratic scan ends, and far past the size of a chunk.
TEST(Bpe, LongWordsOfTheGenuineVocabularyFollowTheDefinition) {
  std::mt19937 random(4);
  const Bpe bpe(qwen_tables().merges, qwen_tables().vocabulary.byte_ids());
  const Bpe whole(qwen_tables().merges, qwen_tables().vocabulary.byte_ids(), {.size = 1U << 30, .margin = 1});
  BpeWorkspace workspace;
  for (const size_t size : {31U, 32U, 33U, 1000U, 16383U, 16384U, 16385U, 100000U}) {
    std::string word;
    while (word.size() < size) {
      word.append(random() % 20 == 0 ? random() % 40 : 1, static_cast<char>('a' + random() % 26));
    }
    Ids in_chunks;
    Ids at_once;
    bpe.encode(word, workspace, in_chunks);
    whole.encode(word, workspace, at_once);
    EXPECT_EQ(in_chunks, at_once) << size;
  }
  EXPECT_EQ(workspace.num_whole, 0U);
}

}  // namespace
}  // namespace kipp
