// Signals: Ctrl-C ends the work in progress in good order, a second one ends the process.
#pragma once

namespace kipp::cli {

// The first SIGINT sets a flag, a second one ends the process; it stays ignored where the parent had it ignored (nohup,
// a job in the background of a script). SIGPIPE and SIGXFSZ are ignored: writes report EPIPE, EFBIG.
void install_signal_handlers();

// For a signal's handler: the default action, now. Returns only where that action was to stop, when the process goes
// on.
void end_by_signal(int signal);

// A handler for the second SIGINT that cleans up first; it calls end_by_signal at its end.
void set_second_interrupt(void (*handler)(int));

// True from the first SIGINT on. Long work asks between its steps.
bool interrupted();

// Forgets an interrupt and waits for the next one: for a chat, where Ctrl-C ends an answer and not the program.
void rearm_interrupt();

}  // namespace kipp::cli
