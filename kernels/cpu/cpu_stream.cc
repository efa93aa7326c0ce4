#include "kernels/cpu/cpu_stream.h"

#include <pthread.h>

#include <future>
#include <utility>

#include "src/base/error.h"
#include "src/machine/cpus.h"

namespace canopy::cpu {

namespace {

template <class Ours, class Theirs>
Ours& ours(Theirs& given, const char* what) {
  auto* found = dynamic_cast<Ours*>(&given);
  if (found == nullptr)
    throw Error(std::string("this ") + what + " belongs to another kind of device");
  return *found;
}

}  // namespace

bool Timeline::reached(std::uint64_t point) const {
  const std::lock_guard lock(mutex_);
  return done_ >= point;
}

void Timeline::wait(std::uint64_t point) const {
  std::unique_lock lock(mutex_);
  moved_.wait(lock, [&] { return done_ >= point; });
}

void Timeline::advance() {
  {
    const std::lock_guard lock(mutex_);
    ++done_;
  }
  moved_.notify_all();
}

CpuEvent::Point CpuEvent::point() const {
  const std::lock_guard lock(mutex_);
  return point_;
}

bool CpuEvent::reached() const {
  const Point p = point();
  return p.timeline == nullptr || p.timeline->reached(p.at);
}

void CpuEvent::wait() const {
  const Point p = point();
  if (p.timeline != nullptr) p.timeline->wait(p.at);
}

Seconds CpuEvent::since(const Timer& earlier) const {
  const auto& from = ours<const CpuEvent>(earlier, "timer");
  require(timed_ && from.timed_, "only a timer knows when it was reached");
  return when_ - from.when_;
}

CpuStream::CpuStream(std::string_view name, std::vector<int> cpus) : name_(name) {
  std::promise<void> bound;
  thread_ = std::thread([this, &bound, cpus = std::move(cpus)] {
    try {
      bind_thread(pthread_self(), cpus);
      // Linux keeps 15 characters of a thread's name.
      pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());
      bound.set_value();
    } catch (...) {
      bound.set_exception(std::current_exception());
      return;
    }
    serve();
  });
  try {
    bound.get_future().get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

CpuStream::~CpuStream() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  queued_.notify_one();
  thread_.join();
}

CpuStream::Slot& CpuStream::claim() {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return tail_ - head_ < kSlots; });
  return (*slots_)[tail_ % kSlots];  // the thread does not look at it before publish()
}

void CpuStream::publish() {
  {
    const std::lock_guard lock(mutex_);
    ++tail_;
  }
  queued_.notify_one();
}

void CpuStream::record(Event& event) {
  if (capturing_ != nullptr) {
    capturing_->pieces_.emplace_back().record = &event;
    return;
  }
  auto& recorded = ours<CpuEvent>(event, "event");
  if (recorded.timed_) {
    auto* const when = &recorded.when_;
    enqueue([when] { *when = std::chrono::steady_clock::now(); });
  }
  const std::lock_guard lock(recorded.mutex_);
  recorded.point_ = {timeline_, tail_};  // only this thread moves tail_
}

void CpuStream::wait(const Event& event) {
  if (capturing_ != nullptr) {
    capturing_->pieces_.emplace_back().wait = &event;
    return;
  }
  CpuEvent::Point point = ours<const CpuEvent>(event, "event").point();
  if (point.timeline == nullptr || point.timeline == timeline_) return;
  Slot& slot = claim();
  slot.work.clear();
  slot.until = std::move(point);
  publish();
}

std::unique_ptr<Graph> CpuStream::capture(const std::function<void()>& work) {
  require(capturing_ == nullptr, "this stream is capturing already");
  auto graph = std::make_unique<CpuGraph>();
  capturing_ = graph.get();
  try {
    work();
  } catch (...) {
    capturing_ = nullptr;
    throw;
  }
  capturing_ = nullptr;
  return graph;
}

void CpuStream::launch(const Graph& graph) {
  require(capturing_ == nullptr, "a graph cannot be captured in another");
  for (const CpuGraph::Piece& piece : ours<const CpuGraph>(graph, "graph").pieces_) {
    if (piece.record != nullptr) {
      record(*piece.record);
    } else if (piece.wait != nullptr) {
      wait(*piece.wait);
    } else {
      claim().work = piece.work;
      publish();
    }
  }
}

void CpuStream::synchronize() {
  require(capturing_ == nullptr, "captured work has not run, so it cannot be waited for");
  std::exception_ptr error;
  {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [&] { return head_ == tail_; });
    error = std::exchange(error_, nullptr);
  }
  if (error)
    in_context("running the stream '" + name_ + "'", [&] { std::rethrow_exception(error); });
}

void CpuStream::serve() {
  for (;;) {
    Slot* slot = nullptr;
    bool skip = false;
    {
      std::unique_lock lock(mutex_);
      queued_.wait(lock, [&] { return head_ != tail_ || stopping_; });
      if (head_ == tail_) return;
      slot = &(*slots_)[head_ % kSlots];
      skip = error_ != nullptr;
    }
    std::exception_ptr error;
    if (!slot->work) {  // honoured after a failure too: points keep their meaning
      slot->until.timeline->wait(slot->until.at);
      slot->until = {};
    } else if (!skip) {
      try {
        slot->work();
      } catch (const Error&) {
        error = std::current_exception();
      } catch (const std::exception& e) {
        error = std::make_exception_ptr(Error(std::string("queued work failed: ") + e.what()));
      }
    }
    timeline_->advance();
    {
      const std::lock_guard lock(mutex_);
      ++head_;
      if (error) error_ = std::move(error);  // so that whoever rethrows it frees it
    }
    finished_.notify_all();
  }
}

}  // namespace canopy::cpu
