// Standard output as every command uses it: unbuffered whole writes, with a closed reader and a full disk told apart.
// Messages for people (errors, summaries, progress) go to standard error.
#pragma once

#include <string_view>

#include "cli/exit_code.h"
#include "kipp/error.h"

namespace kipp::cli {

class Output {
 public:
  explicit Output(int descriptor) : descriptor_(descriptor) {}

  // Writes all bytes before it returns. Errors: kIo with the system's reason. After the first error nothing is written
  // any more and every call fails.
  Result<void> write(std::string_view bytes);
  // The last write failed because nobody reads any more (EPIPE).
  bool closed_by_reader() const { return closed_by_reader_; }

 private:
  int descriptor_;
  bool failed_ = false;
  bool closed_by_reader_ = false;
};

// Standard output of the process.
Output& standard_output();

// Prints "kipp: error: <message>" to standard error and returns the code; a closed standard output stays quiet and
// returns kOutputClosed instead.
ExitCode fail(ExitCode code, const Error& error);

// How a command's work ends: by itself; interrupted, whatever error the interrupt brought about (half a character, half
// a JSON text); or by an error, which is printed as fail(kFailure) does.
ExitCode end_of(const Result<ExitCode>& done);
ExitCode end_of(const Error& error);

// Writes a command's result, all there is to do: kOk, or what fail(kFailure) says of the error.
ExitCode print_result(std::string_view text);

// Writes text to standard error; failures are ignored (there is nowhere left to report them).
void print_message(std::string_view text);

}  // namespace kipp::cli
