// SHA-256 against the vectors of FIPS 180-4 and the NIST examples.
#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace kipp {
namespace {

std::string hash(std::string_view text) {
  return sha256_hex(std::as_bytes(std::span(text)));
}

TEST(Sha256, PublishedVectors) {
  EXPECT_EQ(hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrs"
                 "mnopqrstnopqrstu"),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(hash(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Lengths around the block and the place of the length field; the vectors come from Python's hashlib.
TEST(Sha256, PaddingBoundaries) {
  EXPECT_EQ(hash(std::string(55, 'a')), "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  EXPECT_EQ(hash(std::string(56, 'a')), "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
  EXPECT_EQ(hash(std::string(63, 'a')), "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34");
  EXPECT_EQ(hash(std::string(64, 'a')), "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
  EXPECT_EQ(hash(std::string(65, 'a')), "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0");
  EXPECT_EQ(hash(std::string(119, 'a')), "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb");
  EXPECT_EQ(hash(std::string(120, 'a')), "2f3d335432c70b580af0e8e1b3674a7c020d683aa5f73aaaedfdc55af904c21c");
}

TEST(Sha256, PiecesGiveTheSameAsTheWhole) {
  std::string text(300, '\0');
  for (size_t i = 0; i < text.size(); ++i) {
    text[i] = static_cast<char>(i * 7);
  }
  const auto bytes = std::as_bytes(std::span(text));
  Sha256 whole;
  whole.update(bytes);
  const Sha256::Digest expected = whole.finish();
  for (size_t first = 0; first <= 130; ++first) {
    for (const size_t second : {0U, 1U, 63U, 64U, 65U, 128U}) {
      Sha256 pieces;
      pieces.update(bytes.first(first));
      pieces.update(bytes.subspan(first, second));
      pieces.update(bytes.subspan(first + second));
      ASSERT_EQ(pieces.finish(), expected) << first << " " << second;
    }
  }
}

}  // namespace
}  // namespace kipp
