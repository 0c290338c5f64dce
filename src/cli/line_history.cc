// libedit writes a history in place and does not look whether it succeeded: here it writes into a nameless file first.
#include "cli/line_history.h"

#include <histedit.h>

#include <array>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "cli/wide_text.h"
#include "gates/output_file.h"

namespace kipp::cli {
namespace {

constexpr int kHistorySize = 1000;

using File = std::unique_ptr<std::FILE, decltype([](std::FILE* file) { std::fclose(file); })>;
using OwnedHistory = std::unique_ptr<HistoryW, decltype([](HistoryW* history) { history_wend(history); })>;

HistoryW* new_history() {
  static_cast<void>(std::setlocale(LC_CTYPE, "C.UTF-8"));  // libedit reads and writes files by the locale
  HistoryW* history = history_winit();
  HistEventW event;
  if (history != nullptr) {
    history_w(history, &event, H_SETSIZE, kHistorySize);
    history_w(history, &event, H_SETUNIQUE, 1);
  }
  return history;
}

void enter(HistoryW* history, const std::string& line) {
  HistEventW event;
  history_w(history, &event, H_ENTER, to_wide(line).c_str());
}

// Whether there is anything to read. Nothing: it cannot be known, and errno says why.
std::optional<bool> holds_bytes(const std::filesystem::path& path) {
  errno = 0;
  const File file(std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) {
    return errno == ENOENT ? std::optional(false) : std::nullopt;
  }
  const bool any = std::fgetc(file.get()) != EOF;
  return std::ferror(file.get()) != 0 ? std::nullopt : std::optional(any);
}

Result<void> load(HistoryW* history, const std::filesystem::path& path) {
  const std::optional<bool> any = holds_bytes(path);
  HistEventW event;
  if (any == false || (any && history_w(history, &event, H_LOAD, path.c_str()) >= 0)) {
    return {};
  }
  return make_error(ErrorCode::kIo, fmt::format("{}: cannot be read as a history of lines{}{}", path.string(),
                                                any ? "" : ": ", any ? "" : std::strerror(errno)));
}

// The history as libedit writes it. Nothing: it could not, and errno says why.
std::optional<std::string> file_text(HistoryW* history) {
  const File file(std::tmpfile());
  HistEventW event;
  if (file == nullptr || history_w(history, &event, H_SAVE_FP, file.get()) < 0 || std::fflush(file.get()) != 0 ||
      std::ferror(file.get()) != 0) {
    return std::nullopt;
  }
  std::rewind(file.get());
  std::string text;
  std::array<char, 4096> chunk;
  while (const size_t count = std::fread(chunk.data(), 1, chunk.size(), file.get())) {
    text.append(chunk.data(), count);
  }
  return std::ferror(file.get()) != 0 ? std::nullopt : std::optional(std::move(text));
}

}  // namespace

LineHistory::LineHistory() : lines_(new_history()) {}

LineHistory::~LineHistory() {
  if (lines_ != nullptr) {
    history_wend(lines_);
  }
}

Result<void> LineHistory::open(const std::filesystem::path& path) {
  if (lines_ == nullptr) {
    return make_error(ErrorCode::kIo, "cannot keep the typed lines: libedit has no history");
  }
  if (path.empty()) {
    return {};
  }
  std::error_code ignored;
  path_ = std::filesystem::canonical(path, ignored);  // of a link the file is replaced and not the link
  path_ = path_.empty() ? path : path_;
  if (std::filesystem::exists(path_, ignored) && !std::filesystem::is_regular_file(path_, ignored)) {
    return make_error(ErrorCode::kIo,
                      fmt::format("{}: cannot be a history of lines: expected a regular file", path_.string()));
  }
  KIPP_TRY(load(lines_, path_));
  return gates::check_writable(path_);
}

Result<void> LineHistory::add(const std::string& line) {
  enter(lines_, line);
  if (path_.empty()) {
    return {};
  }
  unsaved_.push_back(line);
  const OwnedHistory merged(new_history());
  if (merged == nullptr) {
    return make_error(ErrorCode::kIo, fmt::format("{}: cannot write the history of lines", path_.string()));
  }
  KIPP_TRY(load(merged.get(), path_));
  for (const std::string& own : unsaved_) {
    enter(merged.get(), own);
  }
  const std::optional<std::string> text = file_text(merged.get());
  if (!text) {
    return make_error(ErrorCode::kIo,
                      fmt::format("{}: cannot write the history of lines: {}", path_.string(), std::strerror(errno)));
  }
  constexpr mode_t kOwnerOnly = 0600;
  KIPP_TRY(gates::write_whole(path_, *text, kOwnerOnly));
  unsaved_.clear();
  return {};
}

}  // namespace kipp::cli
