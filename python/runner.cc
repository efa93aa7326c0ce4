#include "python/runner.h"

#include <utility>

namespace canopy::python {

void GrowingText::add(std::string_view piece) {
  const std::lock_guard lock(mutex_);
  pieces_ += piece;
  changed_.notify_all();
}

void GrowingText::end(const Text& text) {
  const std::lock_guard lock(mutex_);
  text_ = text;
  changed_.notify_all();
}

void GrowingText::fail(std::string_view why) {
  const std::lock_guard lock(mutex_);
  if (text_ || error_) return;
  error_ = why;
  changed_.notify_all();
}

bool GrowingText::wait_for_piece(Patience patience) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, patience, [&] { return !pieces_.empty() || text_ || error_; });
}

bool GrowingText::wait_for_end(Patience patience) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, patience, [&] { return text_ || error_; });
}

std::string GrowingText::take_pieces() {
  const std::lock_guard lock(mutex_);
  return std::exchange(pieces_, {});
}

std::optional<Text> GrowingText::text() const {
  const std::lock_guard lock(mutex_);
  return text_;
}

std::optional<std::string> GrowingText::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

namespace {

/// The session's hold on a text: where the session ends first, so does the text.
class Hold {
 public:
  explicit Hold(std::shared_ptr<GrowingText> text) : text_(std::move(text)) {}
  ~Hold() { text_->fail("the text was cancelled, or its model closed"); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  GrowingText* operator->() const { return text_.get(); }

 private:
  std::shared_ptr<GrowingText> text_;
};

}  // namespace

Runner::Runner(const Options& options) : thread_([this, options] { work(options); }) {}

void Runner::work(const Options& options) {
  const auto show = [this](Progress progress) {
    const std::lock_guard lock(mutex_);
    progress_ = std::move(progress);
    changed_.notify_all();
  };
  try {
    const OpenEvents events{
        .on_measure = [&](std::string_view what) { show({"measuring " + std::string(what)}); },
        .on_load =
            [&](std::uint64_t done, std::uint64_t all) {
              show({"loading", done, all});
            }};
    const Model model = Model::open(options, events, stop_.get_token());
    auto session = std::make_shared<Session>(model);
    const std::lock_guard lock(mutex_);
    notes_ = model.notes();
    session_ = std::move(session);
    model_ = model;
  } catch (...) {
    const std::lock_guard lock(mutex_);
    fault_ = std::current_exception();
  }
  changed_.notify_all();
  while (model_ && !stop_.stop_requested()) {
    sweep();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return has_work_ || stop_.stop_requested(); });
    has_work_ = false;
  }
  std::shared_ptr<Session> session;
  std::optional<Model> model;
  const std::lock_guard lock(mutex_);
  session.swap(session_);
  model.swap(model_);
}

void Runner::sweep() {
  try {
    session_->run(stop_.get_token());
  } catch (const std::exception& e) {  // the session is over
    const std::lock_guard lock(mutex_);
    failure_ = e.what();
    stop_.request_stop();
  }
}

void Runner::keep_notes() {
  std::vector<std::string> notes = model_->notes();
  const std::lock_guard lock(mutex_);
  notes_ = std::move(notes);
}

bool Runner::wait_until_open(Patience patience) {
  std::unique_lock lock(mutex_);
  const Progress seen = progress_;
  changed_.wait_for(lock, patience, [&] { return model_ || fault_ || progress_ != seen; });
  if (fault_) std::rethrow_exception(fault_);
  return model_.has_value();
}

Progress Runner::progress() const {
  const std::lock_guard lock(mutex_);
  return progress_;
}

void Runner::require_open() const {
  if (!failure_.empty()) throw Error("the model is closed, as it has failed: " + failure_);
  if (!model_ || stop_.stop_requested()) throw Error("the model is closed");
}

Runner::Admitted Runner::admit(const Request& request) {
  std::shared_ptr<Session> session;
  {
    const std::lock_guard lock(mutex_);
    require_open();
    session = session_;
  }
  const auto text = std::make_shared<GrowingText>();
  const auto hold = std::make_shared<const Hold>(text);
  const Events events{.on_text = [hold](std::string_view piece) { (*hold)->add(piece); },
                      .on_end =
                          [this, hold](const Text& whole) {
                            keep_notes();
                            (*hold)->end(whole);
                          },
                      .on_error = [hold](const std::string& what) { (*hold)->fail(what); }};
  const Ticket ticket = session->admit(request, events);
  const std::lock_guard lock(mutex_);
  has_work_ = true;
  changed_.notify_all();
  return {ticket, text};
}

void Runner::cancel(Ticket ticket) {
  std::shared_ptr<Session> session;
  {
    const std::lock_guard lock(mutex_);
    session = session_;
  }
  if (session) session->cancel(ticket);
}

Model Runner::model() const {
  const std::lock_guard lock(mutex_);
  require_open();
  return *model_;
}

std::vector<std::string> Runner::notes() const {
  const std::lock_guard lock(mutex_);
  return notes_;
}

void Runner::close() {
  stop_.request_stop();
  {
    const std::lock_guard lock(mutex_);  // it waits, or looks at the stop after this
    changed_.notify_all();
  }
  const std::lock_guard lock(closing_);
  if (thread_.joinable()) thread_.join();
}

}  // namespace canopy::python
