// Prints diagnostics, and gives errors their types back.
#include "fpdt/base/error.h"

#include <exception>
#include <new>

#include <fmt/format.h>

#include "fpdt/base/printable.h"

namespace fpdt {

void throw_error(const Error& error) {
  switch (error.code()) {
    case ExitCode::bad_input:
      throw InputError(error.what());
    case ExitCode::infeasible:
      throw InfeasibleError(error.what());
    case ExitCode::out_of_memory:
      throw MemoryError(error.what());
    case ExitCode::peer_lost:
      throw PeerError(error.what());
    case ExitCode::file_system:
      throw IoError(error.what());
    case ExitCode::numeric:
      throw NumericError(error.what());
    case ExitCode::done:
    case ExitCode::internal:
    case ExitCode::disagree:
      break;
  }
  throw Error(error.code(), error.what());
}

Error error_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return MemoryError("this machine does not have enough memory");
  } catch (const std::exception& error) {
    return {ExitCode::internal, fmt::format("internal error: {}", error.what())};
  } catch (...) {
    return {ExitCode::internal, "internal error: an unknown exception"};
  }
}

Error current_error() { return error_of(std::current_exception()); }

namespace {

// A hostile file must not flood its reader's terminal either.
std::string line_of(std::string_view text) {
  constexpr std::size_t kShown = 2000;
  return printable(text.substr(0, kShown)) + (text.size() > kShown ? "..." : "");
}

}  // namespace

std::string format_diagnostics(const std::vector<Diagnostic>& findings, std::size_t limit) {
  std::string text;
  for (std::size_t i = 0; i < findings.size() && i < limit; ++i) {
    const Diagnostic& finding = findings[i];
    text += fmt::format("{}: {} [{}]\n", line_of(finding.where), line_of(finding.message),
                        finding.code);
  }
  if (findings.size() > limit) text += fmt::format("... and {} more\n", findings.size() - limit);
  return text;
}

}  // namespace fpdt
