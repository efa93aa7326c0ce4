#include "src/server/scheduler.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

namespace canopy::server {

namespace {

constexpr std::chrono::seconds kBetweenChecks{1};  // of other ranks, while nobody asks for a text

}  // namespace

Scheduler::Scheduler(Engine& engine, int most_texts, Metrics& metrics)
    : engine_(engine), most_texts_(most_texts), metrics_(metrics) {
  session_.emplace(engine.open_session());
  sweep_.layers = engine.models().target.config().layers;
  sweep_.free_kv_blocks = engine.plan().kv_blocks;
  slots_.resize(static_cast<std::size_t>(engine.plan().max_sequences));
}

std::shared_ptr<Job> Scheduler::submit(const JobRequest& request) {
  auto job = std::make_shared<Job>(request, *engine_.models().tokenizer, metrics_);
  const std::lock_guard lock(mutex_);
  if (ending_) throw Busy(true, "the server is stopping");
  const auto texts = static_cast<int>(request.texts.size());
  if (texts_ + texts > most_texts_) {
    metrics_.ended_early("refused", texts);
    throw Busy(false, "as many texts are on their way as the server takes: " +
                          std::to_string(most_texts_) + "; try again later");
  }
  try {
    for (int i = 0; i < texts; ++i)
      job->tickets_.push_back(
          session_->admit(request.texts[static_cast<std::size_t>(i)], job->events_of(i)));
  } catch (const Error&) {
    for (const Ticket ticket : job->tickets_) session_->cancel(ticket);
    throw;
  }
  jobs_.push_back(job);
  texts_ += texts;
  work_.notify_all();
  return job;
}

void Scheduler::cancel(Job& job) {
  const std::lock_guard lock(mutex_);
  const int left = job.unfinished();
  if (std::erase_if(jobs_, [&](const auto& one) { return one.get() == &job; }) == 0) return;
  for (const Ticket ticket : job.tickets_) session_->cancel(ticket);
  texts_ -= left;
  metrics_.ended_early("cancelled", left);
  gone_ = true;
  work_.notify_all();
}

bool Scheduler::wait_for_work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto has_work = [&] { return !jobs_.empty() || gone_; };
  while (engine_.cluster() && !work_.wait_for(lock, stop, kBetweenChecks, has_work) &&
         !stop.stop_requested()) {
    lock.unlock();
    engine_.check_ranks();
    lock.lock();
  }
  const bool work = work_.wait(lock, stop, has_work);
  gone_ = false;
  return work;
}

void Scheduler::tell() {
  const std::lock_guard lock(mutex_);
  texts_ = 0;
  for (const std::shared_ptr<Job>& job : jobs_) {
    if (const TextReport* first = session_->so_far(job->tickets_.front()))
      job->tell_progress(*first);
    job->publish();
    texts_ += job->unfinished();
  }
  std::erase_if(jobs_, [](const std::shared_ptr<Job>& job) { return job->unfinished() == 0; });
  if (jobs_.empty()) sweep_.running = false;
  follow(slots_, session_->running());
  sweep_.free_kv_blocks = engine_.kv_pool().free_blocks();
}

void Scheduler::end_all(const std::string& why) {
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<Job>& job : jobs_) {
    for (const Ticket ticket : job->tickets_) session_->cancel(ticket);
    job->fail(why);
    job->publish();
  }
  jobs_.clear();
  texts_ = 0;
}

void Scheduler::step(const std::stop_token& stop) {
  const auto on_unit = [&](const Unit& unit) {
    const std::lock_guard lock(mutex_);
    sweep_.running = true;
    sweep_.layer = unit.layer;
    follow(slots_, session_->running());
  };
  try {
    if (session_->step(stop, on_unit) && session_->last_sweep().texts > 0) {
      {
        const std::lock_guard lock(mutex_);
        sweep_.last = session_->last_sweep();
        ++sweep_.sweeps;
        sweep_.tokens += static_cast<std::uint64_t>(sweep_.last.tokens);
      }
      metrics_.swept(session_->last_sweep());
    }
  } catch (const Stopped&) {
    return;
  } catch (const Error&) {  // every client has the error; those who come now may fare better
    if (engine_.cluster()) throw;
    tell();
    const std::lock_guard lock(mutex_);
    learned_.add(session_->learned());
    session_.reset();
    session_.emplace(engine_.open_session());
    return;
  }
  tell();
}

void Scheduler::run(const std::stop_token& stop, std::chrono::milliseconds grace,
                    const std::function<void(int texts)>& on_ending) {
  std::stop_source now;  // the grace is over
  std::jthread timer([&](const std::stop_token& over) {
    std::mutex mutex;
    std::condition_variable_any asked;
    const std::stop_callback wake(stop, [&] {
      const std::lock_guard lock(mutex);  // not between the look at `stop` and the wait
      asked.notify_all();
    });
    std::unique_lock lock(mutex);
    std::jthread telling;  // which may take as long as it likes
    if (asked.wait(lock, over, [&] { return stop.stop_requested(); })) {
      try {
        telling = std::jthread([&] { on_ending(texts()); });
      } catch (const std::system_error&) {  // no thread to be had: it ends without the call
      }
      asked.wait_for(lock, over, grace, [] { return false; });
    }
    now.request_stop();
  });
  const std::stop_callback close(stop, [this] {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  });
  try {
    while (wait_for_work(stop) && !now.stop_requested()) step(now.get_token());
  } catch (const Error& error) {  // the ranks that share the model go apart
    {
      const std::lock_guard lock(mutex_);
      ending_ = broken_ = true;
    }
    end_all(error.what());
    throw;
  }
  end_all("the server was stopped before the text was complete");
  learned_.add(session_->learned());
}

int Scheduler::texts() const {
  const std::lock_guard lock(mutex_);
  return texts_;
}

bool Scheduler::ending() const {
  const std::lock_guard lock(mutex_);
  return ending_;
}

bool Scheduler::broken() const {
  const std::lock_guard lock(mutex_);
  return broken_;
}

SweepState Scheduler::sweep() const {
  const std::lock_guard lock(mutex_);
  return sweep_;
}

Slots Scheduler::slots() const {
  const std::lock_guard lock(mutex_);
  return slots_;
}

double Scheduler::link_rate() const {
  const SweepReport last = sweep().last;
  const double bytes = static_cast<double>(std::max(last.link.upload_bytes, last.link.disk_bytes));
  return last.time.count() > 0 ? bytes / last.time.count() : 0;
}

}  // namespace canopy::server
