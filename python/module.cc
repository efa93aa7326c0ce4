// canopy._canopy: what python/canopy/__init__.py is made on. Arguments and results are plain types.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "python/runner.h"

namespace nb = nanobind;

namespace canopy::python {

namespace {

constexpr Patience kTick{20};  // between two looks at signals

/// Waits until `done(kTick)` is true, with the interpreter's lock released. Throws what a signal's
/// handler raises: KeyboardInterrupt, after Ctrl-C.
template <class Done>
void wait(const Done& done) {
  while (true) {
    {
      const nb::gil_scoped_release released;
      if (done(kTick)) return;
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

std::shared_ptr<Runner> open(const Options& options, const nb::object& on_progress) {
  auto runner = std::make_shared<Runner>(options);
  Progress shown;
  const auto show_progress = [&] {
    const Progress now = runner->progress();
    if (on_progress.is_none() || now == shown) return;
    shown = now;
    on_progress(now.what, now.done, now.all);
  };
  try {
    wait([&](Patience patience) {
      const bool is_open = runner->wait_until_open(patience);
      const nb::gil_scoped_acquire acquired;
      show_progress();
      return is_open;
    });
  } catch (...) {
    {
      const nb::gil_scoped_release released;
      runner->close();
    }
    throw;
  }
  return runner;
}

/// A text that was asked for; where nobody wants it any more, it is not made.
class Generation {
 public:
  Generation(std::shared_ptr<Runner> runner, Runner::Admitted admitted)
      : runner_(std::move(runner)), admitted_(std::move(admitted)) {}
  Generation(Generation&&) = default;
  Generation& operator=(Generation&&) = delete;
  ~Generation() {
    if (runner_) cancel();
  }

  void cancel() {
    if (text().wait_for_end(Patience(0))) return;
    runner_->cancel(admitted_.ticket);
    text().fail("the text was cancelled");
  }
  std::string next_piece() {
    wait([&](Patience patience) { return text().wait_for_piece(patience); });
    return text().take_pieces();
  }
  nb::object result() {
    wait([&](Patience patience) { return text().wait_for_end(patience); });
    const std::optional<Text> whole = text().text();
    if (!whole) return nb::none();
    return nb::make_tuple(whole->text, whole->tokens, scores(whole->logprobs),
                          scores(whole->prompt_logprobs), whole->finish_reason,
                          whole->cached_tokens, whole->sweeps, whole->time.count());
  }
  std::optional<std::string> error() { return text().error(); }

 private:
  GrowingText& text() { return *admitted_.text; }
  static nb::list scores(const std::vector<TokenLogprobs>& logprobs) {
    nb::list scored;
    for (const TokenLogprobs& token : logprobs) {
      nb::list top;
      for (const TokenLogprob& one : token.top) top.append(nb::make_tuple(one.token, one.logprob));
      scored.append(nb::make_tuple(token.chosen.token, token.chosen.logprob, top));
    }
    return scored;
  }

  std::shared_ptr<Runner> runner_;
  Runner::Admitted admitted_;
};

nb::dict in_bytes(const std::vector<LedgerLine>& ledger) {
  nb::dict lines;
  for (const LedgerLine& line : ledger) lines[line.what.c_str()] = line.bytes;
  return lines;
}

nb::dict plan_of(const Runner& runner) {
  const Model model = runner.model();
  const Plan& plan = model.plan();
  nb::dict told;
  told["method"] = plan.method;
  told["tree_nodes"] = plan.tree_nodes;
  told["sequences"] = plan.sequences;
  told["context"] = plan.context;
  told["memory_bytes"] = plan.memory_bytes;
  told["planned_bytes"] = plan.planned_bytes;
  told["gpu_memory_bytes"] = plan.gpu_memory_bytes;
  told["gpu_planned_bytes"] = plan.gpu_planned_bytes;
  told["resident_bytes"] = plan.resident_bytes;
  told["read_bytes"] = plan.read_bytes;
  told["predicted_tokens_per_sweep"] = plan.predicted_tokens_per_sweep;
  told["predicted_seconds_per_token"] = plan.predicted_seconds_per_token;
  told["ledger"] = in_bytes(plan.ledger);
  told["gpu_ledger"] = in_bytes(plan.gpu_ledger);
  return told;
}

template <class Fields>
void bind_options(Fields&& options) {
  options.def(nb::init<>())
      .def_rw("model", &Options::model)
      .def_rw("draft", &Options::draft)
      .def_rw("method", &Options::method)
      .def_rw("tree_nodes", &Options::tree_nodes)
      .def_rw("device", &Options::device)
      .def_rw("memory", &Options::memory)
      .def_rw("gpu_memory", &Options::gpu_memory)
      .def_rw("threads", &Options::threads)
      .def_rw("cpus", &Options::cpus)
      .def_rw("resident_bytes", &Options::resident_bytes)
      .def_rw("context", &Options::context)
      .def_rw("sequences", &Options::sequences)
      .def_rw("kv_memory", &Options::kv_memory)
      .def_rw("temperature", &Options::temperature)
      .def_rw("profile", &Options::profile)
      .def_rw("learn", &Options::learn);
}

template <class Fields>
void bind_request(Fields&& request) {
  request.def(nb::init<>())
      .def_rw("prompt", &Request::prompt)
      .def_rw("tokens", &Request::tokens)
      .def_rw("max_new_tokens", &Request::max_new_tokens)
      .def_rw("temperature", &Request::temperature)
      .def_rw("top_k", &Request::top_k)
      .def_rw("top_p", &Request::top_p)
      .def_rw("min_p", &Request::min_p)
      .def_rw("typical_p", &Request::typical_p)
      .def_rw("repetition_penalty", &Request::repetition_penalty)
      .def_rw("presence_penalty", &Request::presence_penalty)
      .def_rw("frequency_penalty", &Request::frequency_penalty)
      .def_rw("logit_bias", &Request::logit_bias)
      .def_rw("stop", &Request::stop)
      .def_rw("seed", &Request::seed)
      .def_rw("ignore_end", &Request::ignore_end)
      .def_rw("logprobs", &Request::logprobs)
      .def_rw("prompt_logprobs", &Request::prompt_logprobs);
}

}  // namespace

NB_MODULE(_canopy, module) {
  module.doc() = "The engine for the package canopy, which has the documented classes.";
  // The one that was registered last is tried first.
  const nb::exception<Error> error(module, "Error", PyExc_RuntimeError);
  const nb::exception<BudgetError> budget_error(module, "BudgetError", error.ptr());
  module.def("version", &version);
  module.def("parse_size", &parse_size, nb::arg("text"));
  bind_options(nb::class_<Options>(module, "Options"));
  bind_request(nb::class_<Request>(module, "Request"));

  nb::class_<Generation>(module, "Generation")
      .def("next_piece", &Generation::next_piece, "Waits for text; empty after the end.")
      .def("result", &Generation::result, "Waits for the end; None: see error.")
      .def("cancel", &Generation::cancel)
      .def_prop_ro("error", &Generation::error);

  nb::class_<Runner>(module, "Model")
      .def("plan", &plan_of)
      .def("device", [](const Runner& runner) { return runner.model().device(); })
      .def("notes", &Runner::notes)
      .def("tokenize", [](const Runner& runner,
                          std::string_view text) { return runner.model().tokenize(text); })
      .def(
          "tokenize_conversation",
          [](const Runner& runner, std::string messages, std::string tools, std::string variables) {
            return runner.model().tokenize(
                Conversation{std::move(messages), std::move(tools), std::move(variables)});
          })
      .def("detokenize",
           [](const Runner& runner, const std::vector<TokenId>& tokens) {
             return runner.model().detokenize(tokens);
           })
      .def("admit",
           [](const std::shared_ptr<Runner>& runner, const Request& request) {
             const nb::gil_scoped_release released;
             return Generation(runner, runner->admit(request));
           })
      .def("close", &Runner::close, nb::call_guard<nb::gil_scoped_release>());
  module.def("open", &open, nb::arg("options"), nb::arg("on_progress").none());
}

}  // namespace canopy::python
