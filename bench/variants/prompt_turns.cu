#define KIPP_TURNS true
#define attention_prompt_sm90 attention_prompt_sm90_turns
#define has_attention_prompt_sm90 has_attention_prompt_sm90_turns
#include "../../src/backend/cuda/kernels/attention_prompt_sm90.cu"
