// Errors that only `main` can act on are exceptions derived from fpdt::Error; each carries the exit
// code of its kind. Mistakes in a file are collected as Diagnostics, so that its author sees them
// all at once.
#pragma once

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace fpdt {

// Exit codes of every command (docs/diagnostics.md).
enum class ExitCode : int {
  done = 0,
  internal = 1,
  bad_input = 2,
  infeasible = 3,
  disagree = 4,
  out_of_memory = 5,
  peer_lost = 6,
  file_system = 7,
  numeric = 8,
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

// Bad input or usage (exit 2).
class InputError : public Error {
 public:
  explicit InputError(const std::string& message) : Error(ExitCode::bad_input, message) {}
};

// The request does not fit its budgets (exit 3).
class InfeasibleError : public Error {
 public:
  explicit InfeasibleError(const std::string& message) : Error(ExitCode::infeasible, message) {}
};

// The machine has less memory than the plan needs (exit 5).
class MemoryError : public Error {
 public:
  explicit MemoryError(const std::string& message) : Error(ExitCode::out_of_memory, message) {}
};

// A peer died or a deadline passed (exit 6).
class PeerError : public Error {
 public:
  explicit PeerError(const std::string& message) : Error(ExitCode::peer_lost, message) {}
};

// A file could not be read or written (exit 7).
class IoError : public Error {
 public:
  explicit IoError(const std::string& message) : Error(ExitCode::file_system, message) {}
};

// A value became NaN or infinite (exit 8).
class NumericError : public Error {
 public:
  explicit NumericError(const std::string& message) : Error(ExitCode::numeric, message) {}
};

// Throws an error again as the type of its code. Codes without a type are thrown as Error.
[[noreturn]] void throw_error(const Error& error);

// An exception as an Error: a MemoryError for std::bad_alloc, an internal error for what is no
// Error.
Error error_of(const std::exception_ptr& exception);
// The exception that is being handled. Precondition: there is one.
Error current_error();

// One finding about a file or a schedule. `code` is stable (docs/schedule-format.md lists them).
struct Diagnostic {
  std::string code;     // such as "S203"
  std::string where;    // such as "model.yaml:3:7" or "forward.attn.1.0"
  std::string message;  // expected, found, nearest fix
  std::string field{};  // the path of the wrong key of a strategy; "" elsewhere
};

// "where: message [code]", one line each: at most `limit` lines, then a count of the rest.
std::string format_diagnostics(const std::vector<Diagnostic>& findings, std::size_t limit = 20);

}  // namespace fpdt
