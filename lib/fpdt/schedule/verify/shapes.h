// The demands of each op on its operands: elements, types, memory spaces, lanes. One rule per body.
//
// Operands may be flat buffers, so a rule counts the elements of the operand's rows instead of
// comparing shapes. A read must hold at least what the op takes. A target must hold exactly what
// the op writes, because a write makes all its rows valid.
#pragma once

#include "fpdt/schedule/verify/parts.h"

namespace fpdt {

// Precondition: S1xx is clean; rows of the operands are inside their slots.
void check_shape(const Schedule& schedule, const Op& op, const std::string& where,
                 Findings& findings);

}  // namespace fpdt
