#include "src/measure/measurement_cache.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "planner/acceptance.h"
#include "planner/acceptance_file.h"
#include "planner/experts/learned_routes.h"
#include "planner/learned_acceptance.h"
#include "src/base/cache_dir.h"
#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/file_writer.h"
#include "src/checkpoint/fingerprint.h"

namespace canopy {

namespace fs = std::filesystem;

namespace {

std::string read_settings(const fs::path& file) {
  return read_file(file, kMostSettingsBytes, FileKind::kOfUser);
}

/// Returns the file that keeps the profile of these models on this machine; nothing, with a note,
/// if there is no place for it.
std::optional<fs::path> kept_profile(const ModelFiles& models, const EngineOptions& options,
                                     const ProfileEvents& events) {
  if (const std::string ignored = ignored_cache_dir(); !ignored.empty()) events.on_note(ignored);
  try {
    cache_dir();
  } catch (const Error& e) {
    events.on_note(std::string("what is measured cannot be kept: ") + e.what());
    return std::nullopt;
  }
  return profile_file(models, options);
}

/// Nothing, with a note, if there is none that holds.
std::optional<HardwareProfile> read_kept(const std::optional<fs::path>& kept,
                                         const ProfileEvents& events) {
  std::error_code out_of_reach;
  if (!kept || !fs::exists(*kept, out_of_reach)) {
    events.on_note(
        "these models have not run on this machine before: measuring what a step costs (once, "
        "about 10 s)");
    return std::nullopt;
  }
  try {
    HardwareProfile profile = parse_profile(kept->string(), read_settings(*kept));
    if (profile.code == measured_code()) return profile;
    events.on_note("the profile of this machine was measured with other code, of " + profile.date +
                   ": measuring again");
  } catch (const Error& e) {
    events.on_note(e.what());
  }
  return std::nullopt;
}

}  // namespace

HardwareProfile parse_profile(const std::string& file, const std::string& content) {
  try {
    return hardware_profile_from_json(content);
  } catch (const Error& e) {
    throw Error(file + ": " + e.what());
  }
}

namespace {

/// A measurement on its way to a kept profile: what is timed is written next to that profile's
/// place now and then, and taken up again where it was cut.
class KeptMeasurement {
 public:
  KeptMeasurement(const std::optional<fs::path>& profile, const ProfileEvents& events)
      : events_(events) {
    if (!profile) return;
    file_ = *profile;
    file_->replace_extension(".cut");
    std::error_code out_of_reach;
    if (!fs::exists(*file_, out_of_reach)) return;
    try {
      samples = MeasuredSamples::from_json(read_settings(*file_), measured_code());
    } catch (const Error& e) {
      events_.on_note(file_->string() + ": " + e.what());
    }
    if (!samples.empty()) events_.on_note("the measurement was cut before: it goes on from there");
  }

  MeasuredSamples samples;

  void keep_now_and_then() {
    const auto now = std::chrono::steady_clock::now();
    if (now - kept_ < kOften) return;
    kept_ = now;
    keep();
  }
  /// Keeps what there is when it is cut.
  void cut() {
    if (!file_ || samples.empty()) return;
    const std::string why = keep();
    events_.on_note(why.empty() ? "the measurement was cut: the next run goes on from there"
                                : "the measurement was cut, and is not kept: " + why);
  }
  void remove() {
    std::error_code not_there;
    if (file_) fs::remove(*file_, not_there);
  }

 private:
  static constexpr std::chrono::seconds kOften{1};

  /// Returns why it cannot; "" where it can.
  std::string keep() {
    if (!file_) return "";
    try {
      std::error_code ignored;  // the writer says what is wrong
      fs::create_directories(file_->parent_path(), ignored);
      write_file(*file_, samples.to_json(measured_code()));
      return "";
    } catch (const Error& e) {
      return e.what();
    }
  }

  const ProfileEvents& events_;
  std::optional<fs::path> file_;
  std::chrono::steady_clock::time_point kept_ = std::chrono::steady_clock::now();
};

HardwareMeasurement measure(const ModelFiles& models, const EngineOptions& options,
                            KeptMeasurement& kept, const ProfileEvents& events,
                            const std::stop_token& stop) {
  try {
    return measure_hardware(
        models, options, kept.samples,
        {.on_measure = events.on_measure, .on_samples = [&] { kept.keep_now_and_then(); }}, stop);
  } catch (const Stopped&) {
    kept.cut();
    throw;
  } catch (...) {
    kept.remove();  // the kept samples may be at fault
    throw;
  }
}

}  // namespace

HardwareProfile find_profile(const ModelFiles& models, const EngineOptions& options,
                             const ProfileEvents& events, const std::stop_token& stop) {
  const std::optional<fs::path> kept = kept_profile(models, options, events);
  if (auto profile = read_kept(kept, events)) return *profile;
  KeptMeasurement measurement(kept, events);
  const HardwareMeasurement done = measure(models, options, measurement, events, stop);
  for (const std::string& note : done.notes) events.on_note(note);
  if (!kept) return done.profile;
  try {
    std::error_code ignored;  // the writer says what is wrong
    fs::create_directories(kept->parent_path(), ignored);
    write_file(*kept, to_json(done.profile));
    events.on_note("measured, and kept in " + kept->string());
    measurement.remove();
  } catch (const Error& e) {
    events.on_note(std::string("measured, but not kept for the next time: ") + e.what());
  }
  return done.profile;
}

namespace {

/// The files that keep the acceptance of a pair.
struct AcceptanceFiles {
  fs::path measured, learned;
};
/// Throws Error if there is no place for a cache.
AcceptanceFiles acceptance_files(const AcceptanceKey& key) {
  const std::string target = source_fingerprint(key.models.target),
                    draft = source_fingerprint(*key.models.draft);
  const Drawing drawing = drawing_of(key.method, static_cast<double>(key.sampling.temperature));
  return {cache_dir() / acceptance_file_name(target, draft, key.sampling),
          cache_dir() / learned_file_name(target, draft, name(drawing), key.sampling)};
}

/// Parses the file's content with `parse`; nothing if it is not there. Throws Error naming it.
template <class Parse>
auto read_if_there(const fs::path& file, const Parse& parse) -> std::optional<decltype(parse(""))> {
  std::error_code out_of_reach;
  if (!fs::exists(file, out_of_reach)) return std::nullopt;
  try {
    return parse(read_settings(file));
  } catch (const Error& e) {
    throw Error(file.string() + ": " + e.what());
  }
}

/// Holds a folder until the descriptor is closed, so that runs that end at once take turns. Without
/// a lock where the file system has none. Throws Error where another run does not let go.
UniqueFd lock_folder(const fs::path& folder) {
  constexpr std::chrono::seconds kPatience{5};
  constexpr std::chrono::milliseconds kBetweenTries{20};
  UniqueFd lock(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto last = std::chrono::steady_clock::now() + kPatience;
  while (lock.is_open() && flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) break;
    if (std::chrono::steady_clock::now() > last)
      throw Error(folder.string() + ": another run has held its lock for " +
                  std::to_string(kPatience.count()) + " s");
    std::this_thread::sleep_for(kBetweenTries);
  }
  return lock;
}

UniqueFd lock_cache() {
  std::error_code ignored;  // the writer says what is wrong
  fs::create_directories(cache_dir(), ignored);
  return lock_folder(cache_dir());
}

/// Nothing where the file is not there, or, with a note, cannot be used: it costs speed only.
template <class Learned>
std::optional<Learned> read_learned(const fs::path& file, const char* what_then,
                                    const OnNote& on_note) {
  try {
    return read_if_there(file, Learned::from_json);
  } catch (const Error& e) {
    on_note(e.what() + std::string(": ") + what_then);
    return std::nullopt;
  }
}

}  // namespace

std::optional<KeptAcceptance> find_acceptance(const AcceptanceKey& key, Learning learning,
                                              const OnNote& on_note) {
  if (!key.models.draft) return std::nullopt;
  AcceptanceFiles files;
  try {
    files = acceptance_files(key);
  } catch (const Error&) {
    return std::nullopt;  // without a place for measurements there are none
  }
  std::optional<KeptAcceptance> kept;
  if (auto measured = read_if_there(files.measured, acceptance_from_json))
    kept = {std::move(measured->acceptance), "measured, " + files.measured.string()};
  if (learning == Learning::kOff) return kept;
  const auto learned =
      read_learned<LearnedAcceptance>(files.learned, "the plan is made without it", on_note);
  if (!learned || learned->empty()) return kept;
  const Acceptance before =
      kept ? kept->acceptance : default_acceptance(static_cast<double>(key.sampling.temperature));
  const std::string texts = std::to_string(learned->texts());
  return KeptAcceptance{
      learned->estimate(before),
      "learned from " + texts + (texts == "1" ? " text, " : " texts, ") + files.learned.string(),
      learned->calibrated()};
}

void keep_acceptance(const AcceptanceKey& key, const LearnedAcceptance& learned,
                     const OnNote& on_note) {
  if (!key.models.draft || learned.empty()) return;
  const fs::path file = acceptance_files(key).learned;
  const UniqueFd lock = lock_cache();
  LearnedAcceptance all =
      read_learned<LearnedAcceptance>(file, "replaced", on_note).value_or(LearnedAcceptance());
  all.add(learned);
  write_file(file, all.to_json());
}

LearnedRoutes find_routes(const ModelFiles& models, const OnNote& on_note) {
  if (models.target.config().experts.count == 0) return LearnedRoutes();
  try {
    const fs::path file = cache_dir() / routes_file_name(source_fingerprint(models.target));
    return read_learned<LearnedRoutes>(file, "the plan is made without it", on_note)
        .value_or(LearnedRoutes());
  } catch (const Error&) {
    return LearnedRoutes();  // without a place for measurements there are none
  }
}

void keep_routes(const Engine& engine) {
  const ExpertReads& reads = engine.plan().weights.experts;
  if (reads.bytes == 0 || !engine.routes().grown()) return;
  const fs::path file = cache_dir() / routes_file_name(source_fingerprint(engine.models().target));
  const UniqueFd lock = lock_cache();
  write_file(file, engine.routes().to_json(reads));
}

}  // namespace canopy
