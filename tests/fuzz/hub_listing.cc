// A repository's name, and what a Hub lists of it.
#include "src/hub/pick.h"
#include "src/hub/repository.h"
#include "tests/fuzz/fuzz.h"

namespace canopy::fuzz {

void fuzz_one(std::string_view input) {
  reads([&] {
    const hub::Repository repository = hub::parse_repository(input);
    expect(repository.in_words() == input || input.find("@main") != input.npos,
           "the name that was given");
    expect(hub::stays_inside(repository.id) && hub::stays_inside(repository.revision),
           "names of folders");
  });
  reads([&] {
    const hub::Listing listing = hub::parse_listing(input);
    expect(hub::is_commit(listing.commit), "a commit");
    const hub::Pick pick =
        hub::with_shards(hub::pick_files(listing.files, ""), input, listing.files);
    for (const std::string& name : pick.files)
      expect(hub::stays_inside(name) && listing.find(name) != nullptr, "files that are listed");
    expect(hub::to_json(hub::parse_listing(hub::to_json(listing))) == hub::to_json(listing),
           "the same listing again");
  });
}

}  // namespace canopy::fuzz
