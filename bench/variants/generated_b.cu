#define KIPP_VARIANT 8, 2, 1
#define attention_generated attention_generated_b
#define attention_generated_workspace_bytes attention_generated_workspace_bytes_b
#include "../../src/backend/cuda/kernels/attention_generated.cu"
