// Matrix products that every machine supports, against triple loops.
#include "matmul_case.h"

namespace fpdt {
namespace {

TEST(MatmulKernel, EveryTranspose) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      check({1, 1, 1, Dtype::f32, Dtype::f32, Dtype::f32, ta, tb});
      check({1, 70, 9, Dtype::f32, Dtype::f32, Dtype::f32, ta, tb});
      check({70, 1, 9, Dtype::f32, Dtype::f32, Dtype::f32, ta, tb});
      check({37, 53, 29, Dtype::f32, Dtype::f32, Dtype::f32, ta, tb});
      check({129, 257, 33, Dtype::f32, Dtype::f32, Dtype::f32, ta, tb});
      check({5, 3, 1000, Dtype::f32, Dtype::f32, Dtype::f32, ta, tb});
      check({140, 30, 400, Dtype::bf16, Dtype::bf16, Dtype::f32, ta, tb});
    }
  }
}

// As layers use them: inputs in the storage type, outputs in the storage type or as sums.
TEST(MatmulKernel, BiasAddendOrAccumulation) {
  for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
    check({33, 304, 24, type, type, type, false, true, true, false, false});
    check({33, 304, 24, type, type, type, false, true, true, true, false});
    check({33, 304, 24, type, type, type, false, true, false, true, false});
    check({64, 48, 160, type, type, Dtype::f32, true, false, false, false, true});
    check({64, 48, 160, type, type, Dtype::f32, false, false, false, false, true});
  }
}

}  // namespace
}  // namespace fpdt
