#include "src/cli/options/sampling_flags.h"

namespace canopy::cli {

namespace po = boost::program_options;

po::options_description sampling_flags() {
  po::options_description flags("Sampling");
  flags.add_options()                                                                      //
      ("temp,temperature", po::value<float>()->value_name("T")->default_value(0.0f, "0"),  //
       "temperature; 0 takes the likeliest token; also --temperature")                     //
      ("top-k", po::value<int>()->value_name("K")->default_value(0),
       "keep the K likeliest (0: all)")                                         //
      ("top-p", po::value<float>()->value_name("P")->default_value(1.0f, "1"),  //
       "then keep the likeliest that make up P of the probability")             //
      ("seed,s", po::value<std::uint64_t>()->value_name("S"),
       "random seed. With it generate writes the text that plain sampling has for this seed, "
       "whatever the draft and the tree are, which takes more sweeps a token; without it the text "
       "is another each time");
  return flags;
}

Sampling sampling_of(const po::variables_map& values) {
  const float top_p = values["top-p"].as<float>();
  if (!(top_p > 0 && top_p <= 1)) throw UsageError("--top-p: must be above 0 and at most 1");
  return {at_least(values, "temp", 0.0f, 0.0f), at_least(values, "top-k", 0, 0), top_p};
}

std::optional<std::uint64_t> seed_of(const po::variables_map& values) {
  if (values.count("seed") == 0) return std::nullopt;
  return values["seed"].as<std::uint64_t>();
}

}  // namespace canopy::cli
