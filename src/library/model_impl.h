#pragma once
// Room src/library: the engine for other programs, in C++ with a stable header, canopy/canopy.h.
// In: Options and Requests. Out: tokens by callbacks, reports.
// Must not show: any other room's header.
#include <atomic>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>

#include "include/canopy/api.h"
#include "src/chat/chat_template.h"
#include "src/engine/engine.h"

namespace canopy::api {

struct Model::Impl {
  Notes notes;  // of what the plan was made from; the engine has its own
  Engine engine;
  Plan plan;
  std::atomic<bool> in_session = false;
  bool learns = false;  // a session keeps what its texts have shown of the draft
  Sampling planned_for;
  SpeculationMethod asked = SpeculationMethod::kAuto;

  /// Plans and loads.
  Impl(ModelFiles models, const EngineOptions& options, const LoadProgress& progress,
       std::stop_token stop)
      : engine(std::move(models), options, progress, std::move(stop)) {}

  /// The model's own, read when it is first asked for. Throws Error: ChatTemplate::load().
  const chat::ChatTemplate& chat_template();

 private:
  std::mutex mutex_;
  std::optional<chat::ChatTemplate> chat_template_;
};

}  // namespace canopy::api
