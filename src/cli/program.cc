#include "src/cli/program.h"

#include <iostream>
#include <new>
#include <system_error>

#include "src/base/error.h"
#include "src/cli/command.h"
#include "src/cli/commands/commands.h"
#include "src/cli/interrupt.h"
#include "src/cli/output/standard_output.h"
#include "src/cli/ranks.h"
#include "src/cli/version.h"
#include "src/machine/process_memory.h"

namespace canopy::cli {

namespace {

constexpr Command kCommands[] = {
    {"bench", "measure whole runs", run_bench, Sharing::kByRanks},
    {"calibrate", "measure what plans are made from", run_calibrate},
    {"chat", "talk with a model", run_chat, Sharing::kByRanks},
    {"detokenize", "turn token ids into text", run_detokenize},
    {"doctor", "measure this machine, and say what stands in the way", run_doctor,
     Sharing::kByRanks},
    {"generate", "continue a prompt", run_generate, Sharing::kByRanks},
    {"inflate", "write a function-preserving enlargement of a small model", run_inflate},
    {"inspect", "show what a model is and what running it takes", run_inspect},
    {"pack", "write a model in fewer bytes, which hold the same weights", run_pack},
    {"perplexity", "score a text", run_perplexity},
    {"plan", "show what generate would do with a budget, and why", run_plan},
    {"pull", "download a model of the Hugging Face Hub, or find it in its cache", run_pull},
    {"quantize", "write a GGUF of 4 or 8 bits, a draft for its own original", run_quantize},
    {"serve", "serve a model over HTTP", run_serve, Sharing::kByRanks},
    {"shard", "write the rows of a model that one of several machines reads", run_shard},
    {"tokenize", "turn text into token ids", run_tokenize},
    {"unpack", "write a packed model as it was, bit for bit", run_unpack},
};
constexpr CommandGroup kCanopy{
    "", "Exact inference of language models far larger than memory.", kCommands,
    "\ncanopy version (or -V, --version) says what this program is and how it was built.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C, 143 by SIGTERM.\n"};

/// "canopy generate", or "canopy" if the first word is no command.
std::string name_of(const std::vector<std::string>& words) {
  for (const Command& command : kCommands)
    if (!words.empty() && command.name == words[0]) return "canopy " + words[0];
  return "canopy";
}

/// Context that an Error gained on its way here stands on lines of its own; a user reads one.
std::string on_one_line(std::string message) {
  static constexpr std::string_view kContext = "\n  while ";
  for (std::size_t at; (at = message.find(kContext)) != std::string::npos;)
    message.replace(at, kContext.size(), ", while ");
  return message;
}

/// The library says of a thread that cannot be started only that a resource is not available.
std::string_view advice_on(const std::exception& e) {
  const auto* const system = dynamic_cast<const std::system_error*>(&e);
  if (system == nullptr || system->code() != std::errc::resource_unavailable_try_again) return "";
  return ": cannot start a thread; is there a limit on memory (ulimit -v) or processes (ulimit "
         "-u)?";
}

int run(const std::vector<std::string>& words) {
  const bool version = !words.empty() && (words[0] == "--version" || words[0] == "-V" ||
                                          words == std::vector<std::string>{"version"});
  if (!version) return run_one_of(kCanopy, words);
  print_version(std::cout);
  return 0;
}

}  // namespace

int run_canopy(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  return run_program(name_of(words), words, run);
}

int run_program(const std::string& name, const std::vector<std::string>& words,
                int (*run)(const std::vector<std::string>& words)) {
  volunteer_for_oom_kill();  // nobody else's program should go for our weights
  prepare_standard_streams();
  try {
    const int code = run(words);
    flush_out();
    return code;
  } catch (...) {
    const Failure failure = failure_of(std::current_exception(), name);
    if (failure.reader_gone) die_of_closed_pipe();
    wait_for_turn();
    std::cerr << name << ": " << failure.text << "\n";
    return failure.code;
  }
}

Failure failure_of(const std::exception_ptr& thrown, const std::string& name) {
  try {
    std::rethrow_exception(thrown);
  } catch (const UsageError& e) {
    return {std::string(e.what()) + "\nTry '" + name + " --help'.", 2};
  } catch (const Stopped&) {
    return {"stopped", Interrupt::exit_code()};
  } catch (const OutputError& e) {
    return {e.what(), 1, e.reader_gone()};
  } catch (const std::bad_alloc&) {
    return {"out of memory"};
  } catch (const std::exception& e) {
    return {on_one_line(e.what()) + std::string(advice_on(e))};
  }
}

}  // namespace canopy::cli
