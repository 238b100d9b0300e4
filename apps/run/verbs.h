// The verbs of fpdt-run. Each function declares the flags of one and returns what runs it.
#pragma once

#include "common/flags.h"

namespace fpdt {

Command declare_train(Options& options);
Command declare_check(Options& options);
Command declare_bench(Options& options);
Command declare_device(Options& options);
Command declare_explain_failure(Options& options);

}  // namespace fpdt
