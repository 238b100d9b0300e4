// Reserves scratch memory, and calls the kernel of an op's body.
#include "fpdt/cpu/kernels.h"

#include <new>

#include "fpdt/cpu/kernels_common.h"

namespace fpdt {
namespace {

constexpr std::align_val_t kScratchAlignment{4096};
constexpr std::int64_t kThreadBytes = cpu::kThreadFloats * static_cast<std::int64_t>(sizeof(float));

}  // namespace

// Layout: [shared | thread 0 | thread 1 | ...]
struct Kernels::Scratch {
  explicit Scratch(std::int64_t size)
      : bytes(size),
        memory(static_cast<std::byte*>(
            ::operator new[](static_cast<std::size_t>(size), kScratchAlignment))) {}
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete[](memory, kScratchAlignment); }
  };
  std::int64_t bytes;
  std::unique_ptr<std::byte[], Free> memory;
};

Kernels::Kernels(Pool& pool)
    : pool_(pool),
      scratch_(std::make_unique<Scratch>(cpu::kSharedBytes + pool.size() * kThreadBytes)) {}

Kernels::~Kernels() = default;

std::int64_t Kernels::workspace_bytes() const { return scratch_->bytes; }

void Kernels::run(const Body& body, std::span<const View> views, std::int64_t rank) {
  std::byte* memory = scratch_->memory.get();
  const cpu::Frame frame{pool_, views, rank, reinterpret_cast<float*>(memory + cpu::kSharedBytes),
                         memory};
  std::visit(
      [&frame](const auto& op) {
        constexpr bool moves = IsCollective<std::decay_t<decltype(op)>>;
        FPDT_ASSERT(!moves);  // the communicator does it
        if constexpr (!moves) cpu::execute(op, frame);
      },
      body);
}

}  // namespace fpdt
