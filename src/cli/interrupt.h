#pragma once
#include <mutex>
#include <stop_token>
#include <thread>

namespace canopy::cli {

/// Turns the first Ctrl-C (or SIGTERM) into a stop request; a second one ends the process at once,
/// unless it comes with the first: timeout(1), for one, sends its signal to a process and to its
/// group, and what was half-written would stay.
/// Must be made before any other thread, as threads inherit its signal mask.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  std::stop_token token() const;
  /// Begins anew, once what was to stop has stopped and the process goes on: the next Ctrl-C is a
  /// first one again.
  void renew();
  /// SIGTERM asked for the stop: nothing goes on.
  static bool terminated();

  /// A stopped command's, by the signal that came: 130 for Ctrl-C, 143 for SIGTERM, as a
  /// shell names a death by them.
  static int exit_code();

 private:
  mutable std::mutex mutex_;
  std::stop_source source_;
  std::jthread watcher_;
};

}  // namespace canopy::cli
