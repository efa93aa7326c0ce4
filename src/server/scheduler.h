#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <vector>

#include "src/engine/engine.h"
#include "src/server/job.h"
#include "src/server/metrics.h"
#include "src/server/slots.h"

namespace canopy::server {

/// Too many texts are there already, or the server is about to end.
class Busy : public Error {
 public:
  Busy(bool ending, const std::string& what) : Error(what), ending_(ending) {}
  bool ending() const { return ending_; }

 private:
  bool ending_;
};

/// A sweep on its way, or the last one.
struct SweepState {
  bool running = false;
  std::uint64_t sweeps = 0;  // that ended
  std::uint64_t tokens = 0;  // that all of these gained
  int layer = 0, layers = 0;
  int free_kv_blocks = 0;
  SweepReport last;
};

/// Lets clients' texts share the sweeps of an engine. One thread runs it; the others ask.
class Scheduler {
 public:
  /// At most `most_texts` wait or run at a time.
  Scheduler(Engine& engine, int most_texts, Metrics& metrics);

  /// Throws Busy; Error if the request can never fit the plan.
  std::shared_ptr<Job> submit(const JobRequest& request);
  /// Its client has gone: it leaves with the sweep.
  void cancel(Job& job);

  /// Sweeps for as long as `stop` allows. Then no job is taken any more, `on_ending` is given the
  /// number of texts on their way (by a thread that only the end of run() waits for), and they have
  /// `grace` to end; the others fail, so that their clients get the reason. Throws Error where
  /// ranks share the model and one has failed or is lost: all texts have that error then.
  void run(const std::stop_token& stop, std::chrono::milliseconds grace,
           const std::function<void(int texts)>& on_ending);

  int texts() const;    // that wait or run
  bool ending() const;  // no job is taken any more
  bool broken() const;  // by an error, after which there is no other sweep
  SweepState sweep() const;
  Slots slots() const;       // as many as texts can share a sweep
  double link_rate() const;  // bytes per second of the last sweep, to where they are computed with
  const LearnedAcceptance& learned() const { return learned_; }  // once run() has returned

 private:
  void step(const std::stop_token& stop);
  void tell();
  void end_all(const std::string& why);
  bool wait_for_work(const std::stop_token& stop);

  Engine& engine_;
  const int most_texts_;
  Metrics& metrics_;
  mutable std::mutex mutex_;
  std::condition_variable_any work_;
  std::optional<Session> session_;
  std::vector<std::shared_ptr<Job>> jobs_;
  int texts_ = 0;  // of all jobs, that have not ended
  bool ending_ = false, broken_ = false;
  bool gone_ = false;  // a client has: the session lets go of its texts at the next step
  SweepState sweep_;
  Slots slots_;
  LearnedAcceptance learned_;
};

}  // namespace canopy::server
