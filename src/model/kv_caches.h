#pragma once
#include <memory>
#include <vector>

#include "src/base/error.h"
#include "src/model/kv_cache.h"

namespace canopy {

/// One model's KV caches, in one pool. They are made once and lent to texts, so that the memory of
/// all texts that can be open at a time is known from the beginning. One thread at a time.
class KvCaches {
  struct GiveBack {
    std::vector<KvCache*>* free = nullptr;
    void operator()(KvCache* cache) const {
      cache->truncate(0);  // its blocks go back; what they hold is remembered
      free->push_back(cache);
    }
  };

 public:
  /// An empty cache; where the loan ends it is emptied for the next text. A loan ends before the
  /// caches do.
  using Loan = std::unique_ptr<KvCache, GiveBack>;

  /// `texts` caches of room.slots each. Throws Error if the device is full.
  KvCaches(Device& device, const ModelConfig& config, KvRoom room, int texts)
      : pool_(device, config, room.blocks, room.types, room.snapshots, room.arena) {
    for (int i = 0; i < texts; ++i) {
      caches_.push_back(std::make_unique<KvCache>(pool_, room.slots, room.nodes));
      free_.push_back(caches_.back().get());
    }
  }
  KvCaches(const KvCaches&) = delete;
  KvCaches& operator=(const KvCaches&) = delete;

  KvPool& pool() { return pool_; }
  const KvPool& pool() const { return pool_; }
  bool all_lent() const { return free_.empty(); }
  /// Throws Error where all are lent.
  Loan lend() {
    require(!free_.empty(), "all KV caches are lent: the plan has room for no more texts");
    KvCache* const cache = free_.back();
    free_.pop_back();
    return Loan(cache, {&free_});
  }

 private:
  KvPool pool_;
  std::vector<std::unique_ptr<KvCache>> caches_;
  std::vector<KvCache*> free_;
};

}  // namespace canopy
