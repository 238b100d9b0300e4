// Fibers, barriers, and the operations of tensor cores.
#include "simt.h"

#include <atomic>
#include <cstdlib>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <ucontext.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace fpdt::emulator {
namespace {

constexpr std::size_t kStackBytes = 128 << 10;
constexpr unsigned kLanes = 32;
constexpr std::size_t kThreadsMost = 1024;
std::atomic<std::size_t> shared_most = 227 << 10;  // of a block

enum class State { ready, at_block, at_warp, returned };

struct Copy {
  void* target;
  const void* source;
  std::size_t bytes;
  bool valid;
};

// A stack to come back to. Unlike swapcontext, a jump needs no system call. The functions that jump
// are not instrumented, because the address sanitizer would forget what it knows of the stack that
// they leave. Their callers must not guess which registers survive (noipa).
using Jump = void* [5];
#define FPDT_JUMPS __attribute__((noipa, no_sanitize_address))

FPDT_JUMPS void jump_to(Jump& stack) { __builtin_longjmp(stack, 1); }

// Both return when something jumps to `here`.
FPDT_JUMPS void switch_to(Jump& stack, Jump& here) {
  if (__builtin_setjmp(here) == 0) jump_to(stack);
}
FPDT_JUMPS void begin(const ucontext_t& stack, Jump& here) {
  if (__builtin_setjmp(here) == 0) ::setcontext(&stack);
}

// A fiber stays when its thread has returned, and runs a thread of the next block.
struct Fiber {
  ucontext_t context{};
  Jump jump{};
  bool begun = false;
  std::unique_ptr<std::byte[]> stack;
  State state = State::returned;
  dim3 index;
  std::vector<Copy> open;                 // not committed yet
  std::vector<std::vector<Copy>> groups;  // committed, the oldest first
};

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};

// The machine of one host thread. It keeps its fibers from block to block.
class Machine {
 public:
  void run(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& thread);

  void wait(State state);
  const std::byte* exchange(const void* mine, std::size_t bytes);
  [[nodiscard]] std::size_t current() const { return current_; }

  Place place;
  Options options;
  std::deque<Fiber> fibers;  // a deque, so that fibers never move
  std::unique_ptr<std::byte, Free> shared;

 private:
  static void enter();
  void play();
  void run_block();
  void resume(std::size_t index);
  bool open_warp(std::size_t first);
  bool release();
  void run_warps();
  void leave();
  void forget();

  std::size_t threads_ = 0;
  std::size_t current_ = 0;
  std::size_t shared_bytes_ = 0;
  std::size_t shared_room_ = 0;
  Jump scheduler_{};
  const std::function<void()>* thread_ = nullptr;
  std::vector<std::byte> boxes_;    // [warp][2 turns][lane][kExchangeBytes]
  std::vector<unsigned> turns_;     // of each fiber: exchanges so far
  std::vector<std::size_t> order_;  // in which threads are resumed
  std::uint64_t random_ = 0;
  std::string failure_;
  const void* host_stack_ = nullptr;
  std::size_t host_stack_bytes_ = 0;
};

constexpr Host kAlone;  // one GPU, and no queue
std::atomic<const Host*> host_in_use{&kAlone};

Machine& machine() {
  static thread_local Machine one;
  return one;
}

void Machine::enter() {
  Machine& self = machine();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &self.host_stack_, &self.host_stack_bytes_);
#endif
  for (;;) self.play();
}

void Machine::play() {
  (*thread_)();
  Fiber& own = fibers[current_];
  if (!own.open.empty() || !own.groups.empty()) {
    failure_ = "a thread returned before its asynchronous copies were awaited";
  }
  own.state = State::returned;
  leave();
}

void Machine::leave() {
  Fiber& own = fibers[current_];
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, host_stack_, host_stack_bytes_);
#endif
  switch_to(scheduler_, own.jump);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, &host_stack_, &host_stack_bytes_);
#endif
}

void Machine::wait(State state) {
  fibers[current_].state = state;
  leave();
}

void Machine::resume(std::size_t index) {
  Fiber& fiber = fibers[index];
  current_ = index;
  place.thread_index = fiber.index;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, fiber.stack.get(), kStackBytes);
#endif
  if (std::exchange(fiber.begun, true)) {
    switch_to(fiber.jump, scheduler_);
  } else {
    begin(fiber.context, scheduler_);
  }
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

// After a failure, drops the threads that were still running.
void Machine::forget() { fibers.clear(); }

// Opens the barrier of the warp that begins at thread `first` if all its lanes wait there.
bool Machine::open_warp(std::size_t first) {
  const std::size_t end = std::min(threads_, first + kLanes);
  std::size_t here = 0;
  for (std::size_t i = first; i < end; ++i) here += fibers[i].state == State::at_warp ? 1U : 0U;
  if (here == 0) return false;
  if (here != end - first) throw std::logic_error("a warp waits for lanes that are elsewhere");
  for (std::size_t i = first; i < end; ++i) fibers[i].state = State::ready;
  return true;
}

// Called when no thread is ready: opens the barriers that are complete; false when the block is
// done.
bool Machine::release() {
  bool opened = false;
  for (std::size_t first = 0; first < threads_; first += kLanes) opened |= open_warp(first);
  if (opened) return true;
  for (std::size_t i = 0; i < threads_; ++i) {
    if (fibers[i].state != State::at_block) continue;
    fibers[i].state = State::ready;
    opened = true;
  }
  return opened;
}

// Runs each warp as far as it gets before the next, which exposes a warp that should have waited.
void Machine::run_warps() {
  for (std::size_t first = 0; first < threads_; first += kLanes) {
    do {
      for (std::size_t i = first; i < std::min(threads_, first + kLanes); ++i) {
        if (fibers[i].state == State::ready) resume(i);
      }
    } while (failure_.empty() && open_warp(first));
  }
}

void Machine::run_block() {
  const auto seed = options.seed + 1;
  for (std::size_t i = 0; i < threads_; ++i) {
    Fiber& fiber = fibers[i];
    const auto number = static_cast<unsigned>(i);
    const unsigned plane = place.block.x * place.block.y;
    fiber.index = {number % place.block.x, number % plane / place.block.x, number / plane};
    fiber.state = State::ready;
    fiber.open.clear();
    fiber.groups.clear();
    turns_[i] = 0;
  }
  std::memset(shared.get(), 0xFF, shared_bytes_);  // NaN
  do {
    // Draws a new order in every round with a multiplicative generator.
    for (std::size_t i = 0; i < threads_ && options.seed != 0; ++i) {
      random_ = random_ * 6364136223846793005ULL + seed;
      std::swap(order_[i], order_[(random_ >> 33) % threads_]);
    }
    for (std::size_t i = 0; i < threads_ && options.seed < 2; ++i) {
      if (fibers[order_[i]].state == State::ready) resume(order_[i]);
    }
    if (options.seed >= 2) run_warps();
    if (!failure_.empty()) throw std::logic_error(std::exchange(failure_, {}));
  } while (std::any_of(fibers.begin(), fibers.begin() + static_cast<std::ptrdiff_t>(threads_),
                       [](const Fiber& fiber) { return fiber.state == State::ready; }) ||
           release());
}

void Machine::run(dim3 grid, dim3 block, std::size_t shared_bytes,
                  const std::function<void()>& thread) {
  threads_ = std::size_t{block.x} * block.y * block.z;
  if (threads_ == 0 || threads_ > kThreadsMost)
    throw std::logic_error("block of 1 to 1024 threads");
  if (shared_bytes > shared_memory_most())
    throw std::logic_error("more shared memory than a block may have");
  if (grid.y > 65535 || grid.z > 65535) throw std::logic_error("more than 65535 blocks in y or z");
  while (fibers.size() < threads_) {
    ::getcontext(&fibers.emplace_back().context);
    Fiber& fiber = fibers.back();
    fiber.stack = std::make_unique<std::byte[]>(kStackBytes);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    ::makecontext(&fiber.context, &Machine::enter, 0);
  }
  boxes_.resize((threads_ + kLanes - 1) / kLanes * 2 * kLanes * kExchangeBytes);
  turns_.resize(threads_);
  order_.resize(threads_);
  for (std::size_t i = 0; i < threads_; ++i) order_[i] = i;
  // Exactly the requested size, so that the address sanitizer sees the end.
  if (shared_room_ != shared_bytes || shared == nullptr) {
    void* memory = nullptr;
    FPDT_ASSERT(::posix_memalign(&memory, 128, shared_bytes) == 0);
    shared.reset(static_cast<std::byte*>(memory));
    shared_room_ = shared_bytes;
  }
  shared_bytes_ = shared_bytes;
  thread_ = &thread;
  place.grid = grid;
  place.block = block;
  const auto blocks = static_cast<std::int64_t>(grid.x) * grid.y * grid.z;
  const std::int64_t first = options.last_blocks < 0 ? 0 : blocks - options.last_blocks;
  for (std::int64_t i = std::max<std::int64_t>(0, first); i < blocks; ++i) {
    const std::int64_t plane = static_cast<std::int64_t>(grid.x) * grid.y;
    place.block_index = {static_cast<unsigned>(i % grid.x),
                         static_cast<unsigned>(i % plane / grid.x),
                         static_cast<unsigned>(i / plane)};
    try {
      run_block();
    } catch (...) {
      forget();
      throw;
    }
  }
}

// Boxes for two turns: a lane that is ahead writes into the other one. No lane can be two ahead.
const std::byte* Machine::exchange(const void* mine, std::size_t bytes) {
  FPDT_ASSERT(bytes <= kExchangeBytes && threads_ % kLanes == 0);
  const std::size_t warp = current_ / kLanes;
  const std::size_t turn = turns_[current_]++ % 2;
  std::byte* const first = boxes_.data() + (warp * 2 + turn) * kLanes * kExchangeBytes;
  std::memcpy(first + current_ % kLanes * kExchangeBytes, mine, bytes);
  wait(State::at_warp);
  return first;
}

}  // namespace

const Place& place() { return machine().place; }
void block_barrier() { machine().wait(State::at_block); }
void warp_barrier() { machine().wait(State::at_warp); }
const std::byte* exchange(const void* mine, std::size_t bytes) {
  return machine().exchange(mine, bytes);
}
unsigned lane() { return static_cast<unsigned>(machine().current()) % kLanes; }
std::byte* dynamic_shared() { return machine().shared.get(); }
std::size_t shared_memory_most() { return shared_most; }
void set_shared_memory_most(std::size_t bytes) { shared_most = bytes; }
void set(const Options& options) { machine().options = options; }

void copy_async(void* target, const void* source, std::size_t bytes, bool valid) {
  FPDT_ASSERT(reinterpret_cast<std::uintptr_t>(target) % bytes == 0);
  FPDT_ASSERT(!valid || reinterpret_cast<std::uintptr_t>(source) % bytes == 0);
  std::memset(target, 0xFF, bytes);
  machine().fibers[machine().current()].open.push_back({target, source, bytes, valid});
}
void commit_copies() {
  Fiber& own = machine().fibers[machine().current()];
  own.groups.push_back(std::exchange(own.open, {}));
}
void await_copies(std::size_t pending) {
  Fiber& own = machine().fibers[machine().current()];
  while (own.groups.size() > pending) {
    for (const Copy& copy : own.groups.front()) {
      if (copy.valid) {
        std::memcpy(copy.target, copy.source, copy.bytes);
      } else {
        std::memset(copy.target, 0, copy.bytes);
      }
    }
    own.groups.erase(own.groups.begin());
  }
}

void run(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& thread) {
  machine().run(grid, block, shared_bytes, thread);
}

void use(const Host& host) { host_in_use = &host; }

void submit(CUstream_st* stream, const Given& given, std::function<void()> task) {
  const Host& host = *host_in_use;
  if (host.enqueue == nullptr || stream == nullptr) return task();
  host.enqueue(stream, given, std::move(task));
}

int current_gpu() {
  const Host& host = *host_in_use;
  return host.current_gpu == nullptr ? 0 : host.current_gpu();
}

}  // namespace fpdt::emulator

namespace fpdt::cuda {
namespace {

float half_of(unsigned pair, unsigned index) {
  return widen(static_cast<std::uint16_t>(index == 0 ? pair & 0xFFFFU : pair >> 16));
}

struct Fragments {
  unsigned a[4];
  unsigned b[2];
};

}  // namespace

unsigned pack_bf16(float low, float high) {
  return static_cast<unsigned>(narrow(low)) | static_cast<unsigned>(narrow(high)) << 16;
}

void mma_bf16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  const Fragments mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const std::byte* all = emulator::exchange(&mine, sizeof mine);
  const unsigned lane = emulator::lane();
  // Registers hold rows lane / 4 and lane / 4 + 8 of a, and columns lane % 4 * 2 and the next of b.
  float of_a[2][16];
  float of_b[2][16];
  for (unsigned t = 0; t < 4; ++t) {
    const auto rows = emulator::of_lane<Fragments>(all, lane / 4 * 4 + t);
    for (unsigned i = 0; i < 8; ++i)
      of_a[i / 2 % 2][i / 4 * 8 + 2 * t + i % 2] = half_of(rows.a[i / 2], i % 2);
    for (unsigned c = 0; c < 2; ++c) {
      const auto column = emulator::of_lane<Fragments>(all, (lane % 4 * 2 + c) * 4 + t);
      for (unsigned i = 0; i < 4; ++i)
        of_b[c][i / 2 * 8 + 2 * t + i % 2] = half_of(column.b[i / 2], i % 2);
    }
  }
  for (unsigned i = 0; i < 4; ++i) {
    float sum = 0;
    for (unsigned k = 0; k < 16; ++k) sum += of_a[i / 2][k] * of_b[i % 2][k];
    d[i] += sum;
  }
}

template <bool transposed>
void load_matrices(unsigned (&r)[4], const void* shared) {
  FPDT_ASSERT(reinterpret_cast<std::uintptr_t>(shared) % 16 == 0);
  const std::byte* all = emulator::exchange(&shared, sizeof shared);
  const unsigned lane = emulator::lane();
  for (unsigned i = 0; i < 4; ++i) {
    const auto element = [&](unsigned row, unsigned column) {
      const auto* values = emulator::of_lane<const std::uint16_t*>(all, 8 * i + row);
      return static_cast<unsigned>(values[column]);
    };
    const unsigned g = lane / 4;
    const unsigned t = lane % 4 * 2;
    r[i] = transposed ? element(t, g) | element(t + 1, g) << 16
                      : element(g, t) | element(g, t + 1) << 16;
  }
  // No rows change before all lanes have read them.
  emulator::warp_barrier();
}
template void load_matrices<false>(unsigned (&)[4], const void*);
template void load_matrices<true>(unsigned (&)[4], const void*);

}  // namespace fpdt::cuda
