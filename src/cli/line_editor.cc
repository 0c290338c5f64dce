// libedit with its own way to read a character: a wait that a signal ends, so that Ctrl-C gives up the line and not the
// program, and UTF-8 whatever the locale.
#include "cli/line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/blocked_signals.h"
#include "cli/interrupt.h"
#include "cli/line_history.h"
#include "cli/terminal.h"
#include "cli/wide_text.h"
#include "tokenizer/utf8.h"

namespace kipp::cli {
namespace {

// The terminal as it was: handlers may only touch what lies still.
termios terminal_before;
volatile std::sig_atomic_t continued = 0;
volatile std::sig_atomic_t resized = 0;
volatile std::sig_atomic_t colours = 0;

// A signal that ends or stops the process leaves the terminal as it was found, without the colours of an answer too.
void restore_and_raise(int signal) {
  static_cast<void>(::tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before));
  if (colours != 0) {
    static_cast<void>(!::write(STDOUT_FILENO, kReset.data(), kReset.size()));
  }
  end_by_signal(signal);
}

void on_continue(int) {
  continued = 1;
}

void on_resize(int) {
  resized = 1;
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  static_cast<void>(::sigaction(signal, &action, nullptr));
}

void handle_signals() {
  for (const int signal : {SIGTERM, SIGHUP, SIGQUIT, SIGTSTP}) {
    handle(signal, restore_and_raise);
  }
  handle(SIGCONT, on_continue);
  handle(SIGWINCH, on_resize);
  set_second_interrupt(restore_and_raise);
}

// The signals that may come while nobody waits are held back until the next wait, so that none is missed.
constexpr std::array kWaitedSignals = {SIGINT, SIGCONT, SIGWINCH};

sigset_t waited_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kWaitedSignals) {
    sigaddset(&set, signal);
  }
  return set;
}

// What a signal asks the editor to do. Returns false after Ctrl-C.
bool after_signal(EditLine* editor) {
  if (std::exchange(continued, 0) != 0) {
    handle_signals();  // a stop has undone its own handler
    el_wset(editor, EL_PREP_TERM, 1);
    el_wset(editor, EL_REFRESH);
  }
  if (std::exchange(resized, 0) != 0) {
    el_resize(editor);
    el_wset(editor, EL_REFRESH);
  }
  return !interrupted();
}

// Waits for a byte. Returns 1, 0 at the end of the input, -1 after Ctrl-C or an error.
int read_byte(EditLine* editor, char& byte) {
  sigset_t open_mask;
  static_cast<void>(::sigprocmask(SIG_BLOCK, nullptr, &open_mask));
  for (const int signal : kWaitedSignals) {
    sigdelset(&open_mask, signal);
  }
  for (;;) {
    if (!after_signal(editor)) {
      return -1;
    }
    pollfd entry{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    if (::ppoll(&entry, 1, nullptr, &open_mask) < 0) {
      if (errno != EINTR) {
        return -1;
      }
      continue;
    }
    const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
    if (count >= 0 || (errno != EINTR && errno != EAGAIN)) {
      return static_cast<int>(count);
    }
  }
}

}  // namespace

struct LineEditor::Impl {
  EditLine* editor = nullptr;
  LineHistory history;
  std::wstring prompt;
  std::string pending;  // bytes read that do not make a character yet

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (editor != nullptr) {
      el_end(editor);
    }
  }

  static Impl& of(EditLine* editor) {
    void* self = nullptr;
    el_wget(editor, EL_CLIENTDATA, &self);
    return *static_cast<Impl*>(self);
  }
  static wchar_t* show_prompt(EditLine* editor) { return of(editor).prompt.data(); }
  static int read_character(EditLine* editor, wchar_t* character) { return of(editor).next_character(*character); }

  // As libedit wants it: 1, 0 at the end, -1 with errno.
  int next_character(wchar_t& character) {
    for (;;) {
      const Utf8Part part = pending.empty() ? Utf8Part{Utf8Status::kIncomplete, 0} : read_utf8(pending);
      if (part.status != Utf8Status::kIncomplete) {
        const bool valid = part.status == Utf8Status::kValid;
        character = valid ? static_cast<wchar_t>(decode_valid_utf8(pending.data()).value) : L'\uFFFD';
        pending.erase(0, part.length);
        return 1;
      }
      char byte = 0;
      const int count = read_byte(editor, byte);
      if (count <= 0) {
        return count;
      }
      pending += byte;
    }
  }
};

LineEditor::LineEditor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LineEditor::LineEditor(LineEditor&&) noexcept = default;
LineEditor& LineEditor::operator=(LineEditor&&) noexcept = default;
LineEditor::~LineEditor() = default;

Result<LineEditor> LineEditor::create(const std::filesystem::path& history) {
  if (::tcgetattr(STDIN_FILENO, &terminal_before) != 0) {
    return make_error(ErrorCode::kIo, fmt::format("cannot use the terminal: {}", std::strerror(errno)));
  }
  static_cast<void>(std::setlocale(LC_CTYPE, "C.UTF-8"));  // libedit writes by the locale
  auto impl = std::make_unique<Impl>();
  impl->editor = el_init("kipp", stdin, stdout, stderr);
  if (impl->editor == nullptr) {
    return make_error(ErrorCode::kIo, "cannot use the terminal: libedit refuses it");
  }
  KIPP_TRY(impl->history.open(history));
  el_wset(impl->editor, EL_CLIENTDATA, impl.get());
  el_wset(impl->editor, EL_EDITOR, L"emacs");
  el_wset(impl->editor, EL_SIGNAL, 0);
  el_wset(impl->editor, EL_GETCFN, &Impl::read_character);
  el_wset(impl->editor, EL_PROMPT, &Impl::show_prompt);
  el_wset(impl->editor, EL_HIST, history_w, impl->history.handle());
  el_wset(impl->editor, EL_BIND, L"^R", L"em-inc-search-prev", nullptr);
  static_cast<void>(el_source(impl->editor, nullptr));  // the user's ~/.editrc
  colours = use_colours(STDOUT_FILENO) ? 1 : 0;
  handle_signals();
  return LineEditor(std::move(impl));
}

LineEditor::Outcome LineEditor::read(const std::string& prompt, std::string& line) {
  const BlockedSignals held(waited_signals());
  impl_->prompt = to_wide(prompt);
  impl_->pending.clear();
  el_wset(impl_->editor, EL_PREP_TERM, 1);  // before the prompt invites somebody to type
  int count = 0;
  const wchar_t* text = el_wgets(impl_->editor, &count);
  if (text != nullptr && count > 0) {
    std::wstring_view wide(text, static_cast<size_t>(count));
    while (!wide.empty() && (wide.back() == L'\n' || wide.back() == L'\r')) {
      wide.remove_suffix(1);
    }
    line = to_utf8(wide);
    return Outcome::kLine;
  }
  const bool given_up = interrupted();
  el_reset(impl_->editor);
  return given_up ? Outcome::kInterrupted : Outcome::kEnd;
}

Result<void> LineEditor::remember(const std::string& line) {
  return impl_->history.add(line);
}

}  // namespace kipp::cli
