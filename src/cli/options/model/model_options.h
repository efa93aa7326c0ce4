#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/cli/options/flags.h"
#include "src/engine/engine.h"

namespace canopy::cli {

/// Help of --allow-holes and of --progress.
inline constexpr const char* kHolesHelp =
    "take weights with bytes that nobody wrote, of a copy made sparse on purpose: they are zeros";
inline constexpr const char* kProgressHelp =
    "report progress on stderr even when it is not a terminal";

/// Returns what --allow-holes means.
inline Holes holes_by(bool allowed) { return allowed ? Holes::kAllowed : Holes::kRefused; }

/// --device, --gpu-memory and --enforce-eager.
struct DeviceOptions {
  std::string device = "auto";
  std::optional<std::uint64_t> gpu_memory;
  bool enforce_eager = false;

  /// `gpus`: those of another machine that is planned for; without them, this one's. Throws
  /// UsageError.
  DeviceChoice choose(const std::optional<Gpus>& gpus = std::nullopt) const;
};

/// The flags that every command which runs a model shares.
struct ModelOptions {
  std::string model;  // a path, or hf:REPO
  DeviceOptions device;
  std::optional<std::uint64_t> memory, kv_memory;
  std::optional<std::string> resident;      // "auto", "none" or a size
  std::optional<std::string> n_gpu_layers;  // "auto" or a number
  bool verify_weights = false, allow_holes = false;
  std::optional<int> context;
  int threads = 0;
  std::optional<std::vector<int>> cpus;  // --cpu-list
  std::optional<DType> cache_type_k, cache_type_v;
  bool progress = false;
  /// Help of these two defaults, which depend on the command.
  std::string default_context = "as much as the request needs";
  std::string default_kv_memory = "every text that shares a sweep can be as long as --ctx-size";

  Flags flags();
  /// Ranks may have the rows alone that are theirs.
  Holes holes() const;
  /// The caller fills in what it knows of prompt and speculation. Notes on stderr say where there
  /// are fewer CPUs than --threads, less memory than --memory, or no GPU for --n-gpu-layers. Throws
  /// UsageError.
  EngineOptions engine_options(const std::optional<Gpus>& gpus = std::nullopt) const;
  /// `text` is what a flag gave; `what` is how messages call it. Throws Error where turning it into
  /// tokens could take more than --memory, or without it than a plan would use.
  void require_room_to_encode(std::string_view text, const std::string& what) const;
};

/// Names a model's file or directory, wherever it lies; its repository, for a folder in the Hugging
/// Face cache, whose own name is a commit.
std::string model_name(const Checkpoint& model);

/// -t: at most the CPUs that this process may use; a note on stderr where `wanted` is more.
int usable_threads(int wanted);

/// Notes on stderr a --memory that is more than this machine, or a memory cgroup, has.
void note_beyond_machine(std::uint64_t memory);

/// Warns on stderr of what the user should know before a run: fallbacks taken, an inflated model, a
/// context beyond the model's own.
void print_notes(const Engine& engine);
/// The same of a model that is not run: what its files say and is taken otherwise.
void print_notes(const Checkpoint& model);
/// The same of a choice, where no engine's notes are printed.
void print_notes(const DeviceChoice& device);

}  // namespace canopy::cli
