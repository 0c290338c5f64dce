// libedit with its own way to read a character: a wait that a signal ends, so that Ctrl-C gives up the line and not the
// program; UTF-8 whatever the locale; and a line that outgrows the screen goes on as a new one, before libedit fails.
#include "cli/line_editor.h"

#include <fcntl.h>
#include <histedit.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/blocked_signals.h"
#include "cli/interrupt.h"
#include "cli/line_history.h"
#include "cli/screen_fit.h"
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
  continued = 1;  // it was a stop; where no shell could end one there is none, and no SIGCONT either
}

void on_continue(int) {
  continued = 1;
}

void on_resize(int) {
  resized = 1;
}

// What the parent has the process ignore stays ignored.
void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  static_cast<void>(::sigaction(signal, nullptr, &action));
  if (action.sa_handler == SIG_IGN) {
    return;
  }
  action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  static_cast<void>(::sigaction(signal, &action, nullptr));
}

void handle_signals() {
  for (const int signal : {SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGSEGV, SIGBUS, SIGFPE, SIGABRT}) {
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

// As libedit reads it.
ScreenSize screen_size() {
  winsize size{};
  static_cast<void>(::ioctl(STDIN_FILENO, TIOCGWINSZ, &size));
  return {.rows = size.ws_row < 1 ? size_t{24} : size.ws_row, .columns = size.ws_col < 2 ? size_t{80} : size.ws_col};
}

}  // namespace

struct LineEditor::Impl {
  EditLine* editor = nullptr;
  LineHistory history;
  ScreenSize screen = screen_size();
  std::wstring prompt;
  std::string pending;   // bytes read that do not make a character yet
  bool went_on = false;  // the line ends because the screen does
  int num_ends = 0;      // asked for since the line began
  // The terminal opened anew, so that reading can be non-blocking without being so for others: Ctrl-C throws away what
  // poll has just seen, and a read that waits would hold the signal back. Where that fails, standard input itself.
  int input = ::open("/proc/self/fd/0", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

  Impl() { input = input < 0 ? STDIN_FILENO : input; }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (editor != nullptr) {
      el_end(editor);
    }
    if (input != STDIN_FILENO) {
      ::close(input);
    }
  }

  static Impl& of(EditLine* editor) {
    void* self = nullptr;
    el_wget(editor, EL_CLIENTDATA, &self);
    return *static_cast<Impl*>(self);
  }
  static wchar_t* show_prompt(EditLine* editor) { return of(editor).prompt.data(); }
  static int read_character(EditLine* editor, wchar_t* character) { return of(editor).next_character(*character); }

  void resize() {
    el_resize(editor);
    screen = screen_size();
  }

  // Signals that came while there was no line to redraw.
  void settle() {
    if (std::exchange(continued, 0) != 0) {
      handle_signals();  // a stop has undone its own handler
    }
    if (std::exchange(resized, 0) != 0) {
      resize();
    }
  }

  // What a signal asks the editor to do. Returns false after Ctrl-C.
  bool after_signal() {
    if (continued != 0 || resized != 0) {
      if (continued != 0) {
        el_wset(editor, EL_PREP_TERM, 0);  // it does not know that the terminal was given back
        el_wset(editor, EL_PREP_TERM, 1);
      }
      settle();
      el_wset(editor, EL_REFRESH);
    }
    return !interrupted();
  }

  // Waits for a byte. Returns 1, 0 at the end of the input, -1 after Ctrl-C or an error.
  int read_byte(char& byte) {
    sigset_t open_mask;
    static_cast<void>(::sigprocmask(SIG_BLOCK, nullptr, &open_mask));
    for (const int signal : kWaitedSignals) {
      sigdelset(&open_mask, signal);
    }
    for (;;) {
      // ppoll lets no signal in while there is input, of which a paste has plenty.
      sigset_t held_mask;
      static_cast<void>(::sigprocmask(SIG_SETMASK, &open_mask, &held_mask));
      static_cast<void>(::sigprocmask(SIG_SETMASK, &held_mask, nullptr));
      if (!after_signal()) {
        return -1;
      }
      pollfd entry{.fd = input, .events = POLLIN, .revents = 0};
      if (::ppoll(&entry, 1, nullptr, &open_mask) < 0) {
        if (errno != EINTR) {
          return -1;
        }
        continue;
      }
      const ssize_t count = ::read(input, &byte, 1);
      if (count >= 0 || (errno != EINTR && errno != EAGAIN)) {
        return static_cast<int>(count);
      }
    }
  }

  // Whether the screen holds this line and any one character more.
  bool fits(std::wstring_view line) const {
    std::wstring shown = prompt;
    shown += line;
    shown += L"123456789";  // \U+10FFFF
    const auto fits_in = [&](ScreenSize size) { return rows_of(shown, size.columns) <= size.rows; };
    return fits_in(screen) && fits_in(screen_size());  // libedit may know of a change before its signal is here
  }

  // A line that the screen no longer holds must end before its next key. False if it may go on, or does not end
  // however often it is told to.
  bool must_end() {
    const LineInfoW* line = el_wline(editor);
    constexpr int kMaxEnds = 4;  // of a search first, then of the line
    if (line->buffer == line->lastchar || num_ends == kMaxEnds ||
        fits(std::wstring_view(line->buffer, line->lastchar))) {
      return false;
    }
    ++num_ends;
    went_on = true;
    return true;
  }

  // As libedit wants it: 1, 0 at the end, -1 with errno.
  int next_character(wchar_t& character) {
    for (;;) {
      if (must_end()) {
        character = L'\n';
        return 1;
      }
      const Utf8Part part = pending.empty() ? Utf8Part{Utf8Status::kIncomplete, 0} : read_utf8(pending);
      if (part.status != Utf8Status::kIncomplete) {
        const bool valid = part.status == Utf8Status::kValid;
        character = valid ? static_cast<wchar_t>(decode_valid_utf8(pending.data()).value) : L'\uFFFD';
        pending.erase(0, part.length);
        return 1;
      }
      char byte = 0;
      const int count = read_byte(byte);
      if (count <= 0) {
        return count;
      }
      pending += byte;
    }
  }

  // The history without the lines that the screen does not hold. For EL_HIST.
  static int walk_history(void* self, HistEventW* event, int operation, ...) {
    Impl& impl = *static_cast<Impl*>(self);
    HistoryW* lines = impl.history.handle();
    if (operation == H_SET) {
      std::va_list arguments;
      va_start(arguments, operation);
      const int number = va_arg(arguments, int);
      va_end(arguments);
      return history_w(lines, event, operation, number);
    }
    const bool to_older = operation == H_FIRST || operation == H_NEXT;
    if (!to_older && operation != H_LAST && operation != H_PREV) {
      return -1;  // the editor asks for nothing else
    }
    int found = history_w(lines, event, operation);
    while (found >= 0 && !impl.fits(event->str)) {
      found = history_w(lines, event, to_older ? H_NEXT : H_PREV);
    }
    return found;
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
  el_wset(impl->editor, EL_HIST, &Impl::walk_history, impl.get());
  el_wset(impl->editor, EL_BIND, L"^R", L"em-inc-search-prev", nullptr);
  static_cast<void>(el_source(impl->editor, nullptr));  // the user's ~/.editrc
  colours = use_colours(STDOUT_FILENO) ? 1 : 0;
  handle_signals();
  return LineEditor(std::move(impl));
}

LineEditor::Outcome LineEditor::read(const std::string& prompt, std::string& line) {
  const BlockedSignals held(waited_signals());
  impl_->settle();
  impl_->prompt = to_wide(prompt);
  impl_->pending.clear();
  std::wstring whole;
  do {
    impl_->went_on = false;
    impl_->num_ends = 0;
    impl_->resize();
    el_wset(impl_->editor, EL_PREP_TERM, 1);  // before the prompt invites somebody to type
    int count = 0;
    const wchar_t* text = el_wgets(impl_->editor, &count);
    if (text == nullptr || count <= 0) {
      const bool given_up = interrupted();
      el_reset(impl_->editor);
      return given_up ? Outcome::kInterrupted : Outcome::kEnd;
    }
    std::wstring_view part(text, static_cast<size_t>(count));
    while (!part.empty() && (part.back() == L'\n' || part.back() == L'\r')) {
      part.remove_suffix(1);
    }
    whole += part;
    impl_->prompt.clear();  // what follows stands below, and is the same line
  } while (impl_->went_on);
  line = to_utf8(whole);
  return Outcome::kLine;
}

Result<void> LineEditor::remember(const std::string& line) {
  return impl_->history.add(line);
}

}  // namespace kipp::cli
