// Small messages between processes, from host memory to host memory, through one communicator and a
// buffer on the device. Every call returns when it is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/base/units.h"
#include "fpdt/cuda/memory.h"
#include "fpdt/cuda/streams.h"
#include "fpdt/nccl/comms.h"

namespace fpdt::nccl {

class Post {
 public:
  // `comm` has `ranks` ranks, of which this is `comms.rank()`. `buffer`: bytes on the device, at
  // least 16 for each rank and 16 more. Both must outlive this. A message may take as long as the
  // deadline of `comms`.
  Post(Comms& comms, Comm& comm, std::int64_t ranks, Bytes buffer);
  ~Post();
  Post(const Post&) = delete;
  Post& operator=(const Post&) = delete;

  // Together: exchanges with every other rank, so that later messages take no device memory.
  void open();
  // Together: the bytes of every rank, by rank.
  std::vector<std::string> gather(std::string_view mine);
  // Between two ranks, which give the same number of bytes.
  void send(std::int64_t rank, std::span<const std::byte> bytes);
  void receive(std::int64_t rank, std::span<std::byte> bytes);

  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  // Returns when everything that was queued on the stream is done.
  void wait(std::chrono::milliseconds limit, const std::string& what);

 private:
  // Gathers `bytes` bytes of every rank. `mine` is padded to that size.
  void gather_piece(std::string_view mine, std::size_t bytes, std::span<char> all);
  static void copy(void* target, const void* source, std::size_t bytes);

  Comms& comms_;
  Comm& comm_;
  const std::size_t ranks_;
  cuda::DeviceMemory buffer_;
  cudaStream_t stream_ = nullptr;
  cuda::DeviceEvent done_{cuda::DeviceEvent::Times::no};
};

}  // namespace fpdt::nccl
