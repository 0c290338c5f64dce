// From a parsed header to a model: each part of the file must be exactly what the registry predicts for it. Three
// independent steps, so that each is tested and fuzzed on its own; ModelFile::open runs them in this order.
#pragma once

#include "gguf/format.h"
#include "gguf/metadata_reader.h"
#include "gguf/model_file.h"

namespace kipp::gguf {

// Every key but the tokenizer's three arrays. MetadataReader::finish after both finds the keys that do not belong.
// Errors: kInvalidArtifact; kUnsupported for another architecture or scheme, or a twin without allow_synthetic.
Result<ArtifactInfo> bind_metadata(MetadataReader& reader, ModelFile::Options options);

// tokens, token_type, merges: counts, the added tokens' texts and every type. That merges name tokens and that no token
// occurs twice is checked where their tables are built, in Tokenizer::create.
Result<TokenizerSource> bind_tokenizer(MetadataReader& reader, bool isolates_think_tokens);

// The set of tensors, their types and shapes, and that their data fill [header.data_offset, file_bytes) without a gap,
// an overlap or a rest. Never reads the data.
Result<ModelWeights> bind_tensors(const Header& header, uint64_t file_bytes, const ArtifactInfo& info);

}  // namespace kipp::gguf
