// cuDNN's graph API (cudnn_backend.h) in C++: turns a graph into descriptors, lets cuDNN choose an
// engine, and runs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cudnn_backend.h>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "fpdt/base/units.h"
#include "fpdt/cuda/cudnn_graph.h"
#include "fpdt/cuda/frame.h"
#include "fpdt/cuda/libraries.h"

namespace fpdt::cuda {

// Does nothing on success. Throws MemoryError when memory ran out, else Error with exit code
// `internal`. The message holds `what` and cuDNN's own words.
void check(cudnnStatus_t status, std::string_view what);

struct DestroyHandle {
  void operator()(cudnnHandle_t handle) const { cudnn().cudnnDestroy(handle); }
};
using CudnnHandle = std::unique_ptr<cudnnContext, DestroyHandle>;
// Makes a handle for the current device. Throws InputError when there is none, or cuDNN is too old.
CudnnHandle make_cudnn_handle();

// The target of a plan: the device of a handle. To find out without a GPU what cuDNN would do on
// one, it is the GPU's properties as cuDNN writes them (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION).
struct PlanTarget {
  cudnnHandle_t handle = nullptr;
  std::string_view properties;  // JSON, only with a null handle; such a plan cannot run
};

class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);

  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           std::span<const T> values) {
    set_all(name, type, static_cast<std::int64_t>(values.size()), values.data());
  }
  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set_all(name, type, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.get());
  }
  void finalize(std::string_view what) { check(cudnn().cudnnBackendFinalize(get()), what); }
  [[nodiscard]] cudnnBackendDescriptor_t get() const { return descriptor_.get(); }

 private:
  void set_all(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               std::int64_t count, const void* values);

  struct Destroy {
    void operator()(cudnnBackendDescriptor_t descriptor) const {
      cudnn().cudnnBackendDestroyDescriptor(descriptor);
    }
  };
  std::unique_ptr<void, Destroy> descriptor_;
};

// The address of a real tensor in one run.
struct Binding {
  Tensor tensor{};
  const void* address = nullptr;  // a multiple of 16 bytes
};

// Uses the first engine that cuDNN's heuristics name and that can be built, whether or not it adds
// in a fixed order.
class GraphPlan {
 public:
  // Throws InputError when no engine takes the graph. The message holds `what`, cuDNN's reason and
  // `advice`.
  GraphPlan(Graph&& graph, const PlanTarget& target, std::string_view what,
            std::string_view advice);

  // Memory that a run needs besides the real tensors. It begins at a multiple of 256 bytes.
  [[nodiscard]] Bytes workspace() const { return workspace_; }
  // cuDNN's number of the engine, which appears in the names of its kernels.
  [[nodiscard]] std::int64_t engine() const { return engine_; }

  // Launches the kernels on the stream. `handle` must be the one that the plan was made for.
  void run(cudnnHandle_t handle, Stream stream, std::span<const Binding> bindings,
           std::byte* workspace) const;

 private:
  Graph graph_;
  // All descriptors are kept, because cuDNN does not promise to copy what it is given: tensors,
  // functions, operations, their graph, the engine's configuration and, last, the plan if there is
  // a device.
  std::vector<Descriptor> descriptors_;
  Bytes workspace_{};
  std::int64_t engine_ = 0;
};

}  // namespace fpdt::cuda
