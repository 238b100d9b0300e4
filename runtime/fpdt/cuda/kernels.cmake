# The files that are compiled twice: for the GPU, and for the emulator of tests/cuda.
set(FPDT_CUDA_KERNELS
  kernels_attention.cu kernels_attention_backward.cu
  kernels_collective.cu kernels_embedding.cu kernels_experts.cu kernels_grouped.cu
  kernels_heads.cu kernels_heads_backward.cu kernels_memory.cu
  kernels_norm.cu kernels_pointwise.cu kernels_reduce.cu kernels_router.cu kernels_sinks.cu kernels_tiles.cu
  kernels_vocabulary.cu)
