// Where the chunks of a tensor class live between their producer and their consumers.
//
// Of the C chunks of an instance (a layer's, for example) the last ones are kept on the device.
// Chunks before `first_kept` go to the pinned host: they are written into the `produced` ring,
// spilled, and fetched into the `fetched` ring when they are needed again. `fetch` alone decides
// which transfers a loop order causes.
//
//   producer -> produced ring --spill--> host --fetch--> fetched ring -> consumer   (spilled)
//   producer -> kept --------------------------------------------------> consumer   (kept)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fpdt/plan/lowering/builder.h"

namespace fpdt {

// An instance number: relative to the calls of the block, or affine in the call's arguments.
struct Instance {
  Version number;
  // Its first chunk on the host, in a ring with other things.
  std::optional<Version> host;

  Instance() = default;
  Instance(const Version& of) : number(of) {}
  bool operator==(const Instance&) const = default;
  template <class Change>
  void change(Change made) {
    made(number);
    if (host) made(*host);
  }
};

struct HomeShape {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::int64_t width = 0;      // elements of a row
  std::int64_t chunks = 1;     // C
  std::int64_t rows = 0;       // of every chunk but the last
  std::int64_t last_rows = 0;  // of the last
  std::int64_t instances = 1;  // alive at once
  std::int64_t kept = 0;       // chunks on the device, the last ones
  // A ring on the host that has other things as well: the first version of repeated chunks, which
  // are the first ones and live from a rerun to backward, and of the others. An Instance with
  // `host` says its own.
  struct Shared {
    BufferIndex ring = -1;
    std::int64_t repeated = 0;
    Version repeated_at, stored_at;
  };
  std::optional<Shared> shared;
  std::int64_t produced_slots = 2;
  std::int64_t fetched_slots = 2;  // 0: consumers have rings of their own
  bool contiguous = false;         // kept chunks are rows of one slot, so one op can span them
  bool stored = true;  // false: chunks live only in the produced ring, and `kept` has no effect

  [[nodiscard]] std::int64_t rows_of(std::int64_t chunk) const {
    return chunk + 1 == chunks ? last_rows : rows;
  }
};

// Declares the ring in which such chunks are on the host, if it has any slots.
BufferIndex add_host_ring(Builder& builder, const HomeShape& shape, std::int64_t slots);

class Home {
 public:
  Home() = default;
  // `like`: another home whose rings on the device this one uses in turn, if it has them.
  Home(Builder& builder, const HomeShape& shape, const Home* like = nullptr);
  // A home in the slots of another one, whose values are dead, with rings of its own.
  Home(Builder& builder, const HomeShape& shape, const Home& other);

  // The operand that the producer of chunk i writes. A chunk for the host begins a version of the
  // produced ring.
  Operand produce(Builder& builder, const Instance& instance, std::int64_t chunk);
  // Call after the producer of chunk i: copies `value`, its operand, to the host if the chunk lives
  // there.
  void spill(Builder& builder, const Instance& instance, std::int64_t chunk, const Operand& value,
             LaneKind lane) const;
  // The operand from which a consumer reads chunk i. It is kept, still in a ring (`latest`: only
  // the chunk used last; `ring`: any that the rings still hold), or fetched now.
  enum class Reuse { none, latest, ring };
  Operand fetch(Builder& builder, const Instance& instance, std::int64_t chunk, Reuse reuse,
                LaneKind lane);
  // Fetches chunk i into `place`, an operand of the caller that outlives the ring.
  void fetch_into(Builder& builder, const Instance& instance, std::int64_t chunk,
                  const Operand& place, LaneKind lane) const;
  // Chunks [first, last], all of them kept, as one operand (contiguous homes only).
  [[nodiscard]] Operand kept_span(const Instance& instance, std::int64_t first,
                                  std::int64_t last) const;

  // Forgets what the rings hold. Call it when a block begins.
  void begin_block();
  // The same rings with so many rows of each chunk, the first of a slot.
  [[nodiscard]] Home with_rows(std::int64_t rows) const;
  // Moves the relative base of this home by n instances at the end of the block.
  void advance(Builder& builder, std::int64_t n) const;

  [[nodiscard]] std::int64_t first_kept() const { return first_kept_; }
  // Records that a consumer used a chunk without fetching it (the diagonal), for Reuse::latest.
  void used(const Instance& instance, std::int64_t chunk, const Operand& value) {
    latest_ = Held{instance, chunk, value};
  }

 private:
  [[nodiscard]] Operand kept(const Instance& instance, std::int64_t chunk) const;
  [[nodiscard]] Operand on_host(const Instance& instance, std::int64_t chunk) const;
  [[nodiscard]] bool alive(const Builder& builder, const Operand& value) const;

  // A chunk as an operand of one of its rings.
  [[nodiscard]] std::int64_t operand_rows(std::int64_t chunk) const;

  HomeShape shape_;
  std::int64_t slot_rows_ = 0;
  std::int64_t first_kept_ = 0;
  BufferIndex kept_ = -1, host_ = -1, produced_ = -1, fetched_ = -1;
  bool beside_ = false;  // in the slots of another home
  // A chunk and the operand that holds it on the device.
  struct Held {
    Instance instance;
    std::int64_t chunk = -1;
    Operand value;
    [[nodiscard]] bool is(const Instance& of, std::int64_t number) const {
      return chunk == number && instance == of;
    }
  };
  void hold(const Builder& builder, const Held& held);

  std::vector<Held> in_rings_;  // newest last
  Held latest_;
};

}  // namespace fpdt
