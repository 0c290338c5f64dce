// The fields of every answer as tables: for the OpenAPI document, and for tests that hold the writers to it. A field
// that is not required may be absent or null.
#pragma once

#include <vector>

#include "server/openai/schema.h"

namespace kipp::openai {

const std::vector<Field>& error_answer_fields();
const std::vector<Field>& completion_answer_fields();  // of chunks, too
const std::vector<Field>& chat_answer_fields();
const std::vector<Field>& chat_chunk_fields();
const std::vector<Field>& model_answer_fields();
const std::vector<Field>& models_answer_fields();
const std::vector<Field>& version_answer_fields();
const std::vector<Field>& props_answer_fields();
const std::vector<Field>& tokenizer_info_answer_fields();
const std::vector<Field>& tokenize_answer_fields();
const std::vector<Field>& detokenize_answer_fields();
const std::vector<Field>& apply_template_answer_fields();

}  // namespace kipp::openai
