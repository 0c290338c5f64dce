// Signals: Ctrl-C ends the work in progress in good order, a second one ends the process.
#pragma once

namespace kipp::cli {

// SIGINT sets a flag once and then has its default action again; SIGPIPE is ignored (writes report EPIPE).
void install_signal_handlers();

// True from the first SIGINT on. Long work asks between its steps.
bool interrupted();

// Forgets an interrupt and waits for the next one: for a chat, where Ctrl-C ends an answer and not the program.
void rearm_interrupt();

}  // namespace kipp::cli
