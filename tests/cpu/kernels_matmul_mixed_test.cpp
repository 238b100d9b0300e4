// Matrix products with every option at once and with operands of different types, which a GPU's
// library does not support.
#include "matmul_case.h"

namespace fpdt {
namespace {

TEST(MatmulKernel, BiasAddendAndAccumulation) {
  for (const Dtype out : {Dtype::f32, Dtype::bf16}) {
    check({33, 300, 20, Dtype::f32, Dtype::f32, out, false, true, true, false, false});
    check({33, 300, 20, Dtype::f32, Dtype::f32, out, false, true, false, true, false});
    check({33, 300, 20, Dtype::f32, Dtype::f32, out, false, true, false, false, true});
    check({33, 300, 20, Dtype::f32, Dtype::f32, out, false, true, true, true, true});
  }
}

TEST(MatmulKernel, MixedStorage) {
  for (const Dtype out : {Dtype::f32, Dtype::bf16}) {
    check({40, 60, 50, Dtype::f32, Dtype::bf16, out, false, true, true, true, false});
    check({40, 60, 50, Dtype::bf16, Dtype::f32, out, true, false, true, true, true});
    check({40, 60, 450, Dtype::bf16, Dtype::bf16, out, false, false, true, true, true});
  }
}

}  // namespace
}  // namespace fpdt
