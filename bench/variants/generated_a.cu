#define KIPP_VARIANT 4, 2, 3
#define attention_generated attention_generated_a
#define attention_generated_workspace_bytes attention_generated_workspace_bytes_a
#include "../../src/backend/cuda/kernels/attention_generated.cu"
