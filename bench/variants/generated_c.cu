#define KIPP_VARIANT 8, 3, 1
#define attention_generated attention_generated_c
#define attention_generated_workspace_bytes attention_generated_workspace_bytes_c
#include "../../src/backend/cuda/kernels/attention_generated.cu"
