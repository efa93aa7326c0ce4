#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <future>
#include <limits>
#include <numeric>
#include <set>
#include <thread>

#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/pool.h"
#include "tests/error_of.h"
#include "tests/handshake.h"
#include "tests/kernels/on_device.h"

namespace canopy {
namespace {

using test::Gate;

class Streams : public OnEachDevice {};

TEST_P(Streams, AnEventIsReachedBeforeItsFirstRecord) {
  const auto event = device().make_event();
  EXPECT_TRUE(event->reached());
  event->wait();
  stream().wait(*event);
  stream().synchronize();
}

TEST_P(Streams, WorkOfTwoStreamsIsOrderedByAnEvent) {
  const auto producer = device().make_stream("producer"),
             consumer = device().make_stream("consumer");
  const auto written = device().make_event(), read = device().make_event();
  OnDevice middle = send(std::vector<std::byte>(1 << 20));
  std::vector<std::byte> source(1 << 20), result(source.size());
  for (int round = 0; round < 100; ++round) {
    read->wait();  // the host may change `source` only when the last round has passed it on
    std::fill(source.begin(), source.end(), static_cast<std::byte>(round));
    producer->wait(*read);
    device().upload(*producer, middle.data(), source);
    producer->record(*written);
    consumer->wait(*written);
    device().download(*consumer, result, middle.data());
    consumer->record(*read);
    consumer->synchronize();
    ASSERT_EQ(result, source);
  }
  producer->synchronize();
}

TEST_P(Streams, SynchronizeOfAnIdleStreamReturns) {
  stream().synchronize();
  stream().synchronize();
}

TEST_P(Streams, AGraphRunsAtEachLaunchWithWhatItsArgumentsAreThen) {
  const std::int64_t slots = 64, rows = 2, width = 4;
  const auto view = [](OnDevice& array, std::initializer_list<std::int64_t> shape) {
    return array.view(DType::kF32, shape);
  };
  OnDevice values = send(std::vector<float>(8, 1.0f));
  OnDevice keys = send(std::vector<float>(256)), more = send(std::vector<float>(256));
  OnDevice block = send(std::vector<std::int32_t>{0});
  OnDevice prefix = send(std::vector<std::int64_t>{0});
  OnDevice q = send(std::vector<float>(61, 1.0f / 61)), rng = send(std::vector<StepRng>(1));
  OnDevice drawn = send(std::vector<std::int32_t>(5));
  OnDevice expected = send(std::vector<std::int32_t>(5));
  const KvView kv{view(keys, {1, slots, width}), view(more, {1, slots, width}),
                  block.view(DType::kI32, {1}), slots * width * 4};
  const auto event = device().make_event();
  const auto work = [&] {
    const TensorView row = view(values, {rows, 1, width});
    ops().store_kv(stream(), row, row, {0, reinterpret_cast<const std::int64_t*>(prefix.data())}, 1,
                   kv);
    ops().draw_tokens(stream(), view(q, {1, 61}), 5, Replacement::kNo,
                      {{}, reinterpret_cast<const StepRng*>(rng.data())}, 0,
                      drawn.view(DType::kI32, {1, 5}));
    stream().record(*event);
  };
  work();  // once without a graph: a device may load kernels when they first run
  std::vector<float> stored(256);
  std::fill_n(stored.begin() + width, rows * width, 1.0f);
  EXPECT_EQ(keys.read<float>(), stored);
  stored.assign(256, 0.0f);
  device().upload(stream(), keys.data(), std::as_bytes(std::span(stored)));
  const std::unique_ptr<Graph> graph = stream().capture(work);
  EXPECT_EQ(keys.read<float>(), stored);  // nothing has run yet
  for (const std::int64_t at : {2, 7}) {
    const StepRng now{3, 1, static_cast<std::uint64_t>(at)};
    device().upload(stream(), prefix.data(), std::as_bytes(std::span(&at, 1)));
    device().upload(stream(), rng.data(), std::as_bytes(std::span(&now, 1)));
    stream().launch(*graph);
    event->wait();
    std::fill_n(stored.begin() + (at + 1) * width, rows * width, 1.0f);
    EXPECT_EQ(keys.read<float>(), stored);
    ops().draw_tokens(stream(), view(q, {1, 61}), 5, Replacement::kNo, now, 0,
                      expected.view(DType::kI32, {1, 5}));
    EXPECT_EQ(drawn.read<std::int32_t>(), expected.read<std::int32_t>());
  }
}

TEST_P(Streams, ACaptureThatFailsLeavesTheStreamAsItWas) {
  const auto fail = [&] { stream().capture([] { throw Error("no such work"); }); };
  EXPECT_THROW(fail(), Error);
  OnDevice array = send(std::vector<std::byte>(16));  // uploads and waits
  EXPECT_EQ(array.read<std::byte>(), std::vector<std::byte>(16));
}

TEST_P(Streams, AGraphMayHoldEveryOpThatUsesScratch) {
  std::mt19937 random(1);
  const std::int64_t n = 5, k = 64, m = 32;
  OnDevice x = send(random_floats(static_cast<std::size_t>(n * k), random));
  OnDevice w = send(random_weights(DType::kBF16, static_cast<std::size_t>(m),
                                   static_cast<std::size_t>(k), random));
  OnDevice y = send(std::vector<float>(static_cast<std::size_t>(n * m)));
  const Projection p{w.weights(DType::kBF16, m, k), {}, y.view(DType::kF32, {n, m})};
  const auto work = [&] {
    for (int i = 0; i < 3; ++i) ops().linear(stream(), x.view(DType::kF32, {n, k}), {&p, 1});
  };
  work();
  const std::vector<float> expected = y.read<float>();
  const std::unique_ptr<Graph> graph = stream().capture(work);
  for (int i = 0; i < 2; ++i) {
    const std::vector<float> zeros(expected.size());
    device().upload(stream(), y.data(), std::as_bytes(std::span(zeros)));
    stream().launch(*graph);
    EXPECT_EQ(y.read<float>(), expected);
  }
}

TEST_P(Streams, ScratchThatIsPartOfAGraphDoesNotGrow) {
  if (GetParam() == "cpu") GTEST_SKIP() << "graphs of the CPU look their scratch up";
  const std::int64_t k = 64, m = 32, many = 64;
  OnDevice x = send(std::vector<float>(static_cast<std::size_t>(many * k)));
  OnDevice w = send(std::vector<std::uint16_t>(static_cast<std::size_t>(m * k)));
  OnDevice y = send(std::vector<float>(static_cast<std::size_t>(many * m)));
  const auto multiply = [&](std::int64_t rows) {
    const Projection p{w.weights(DType::kBF16, m, k), {}, y.view(DType::kF32, {rows, m})};
    ops().linear(stream(), x.view(DType::kF32, {rows, k}), {&p, 1});
  };
  multiply(4);
  const std::string in_capture = error_of([&] { stream().capture([&] { multiply(many / 2); }); });
  EXPECT_NE(in_capture.find("cannot grow"), std::string::npos) << in_capture;
  multiply(many / 2);  // no graph came of it
  const std::unique_ptr<Graph> graph = stream().capture([&] { multiply(many / 2); });
  const std::string behind = error_of([&] { multiply(many); });
  EXPECT_NE(behind.find("reserve()"), std::string::npos) << behind;
  multiply(4);
  stream().launch(*graph);
  stream().synchronize();
}

TEST_P(Streams, TimersTellTheTimeBetweenThem) {
  const auto first = device().make_timer(), second = device().make_timer();
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::byte> source(1 << 20);
  OnDevice to = send(source);
  stream().record(*first);
  for (int i = 0; i < 20; ++i) device().upload(stream(), to.data(), source);
  stream().record(*second);
  stream().synchronize();
  EXPECT_GT(second->since(*first).count(), 0);
  EXPECT_LE(second->since(*first), Seconds(std::chrono::steady_clock::now() - start));
  EXPECT_EQ(first->since(*first).count(), 0);
}

CANOPY_ON_EACH_DEVICE(Streams);

TEST(CpuStream, RunsAsynchronouslyAndKeepsOrder) {
  cpu::CpuStream stream("order", {});
  Gate gate;
  std::vector<int> order;
  Gate* const held = &gate;
  std::vector<int>* const list = &order;
  stream.enqueue([held] { held->pass(); });
  for (int i = 0; i < 200; ++i) stream.enqueue([list, i] { list->push_back(i); });
  gate.open();
  stream.synchronize();
  ASSERT_EQ(order.size(), 200u);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(CpuStream, CapturedWorkCannotBeWaitedForNorHoldAnotherGraph) {
  cpu::CpuStream stream("capturing", {});
  EXPECT_THROW(stream.capture([&] { stream.synchronize(); }), Error);
  const std::unique_ptr<Graph> graph = stream.capture([] {});
  EXPECT_THROW(stream.capture([&] { stream.launch(*graph); }), Error);
  EXPECT_THROW(stream.capture([&] { stream.capture([] {}); }), Error);
  stream.synchronize();
}

TEST(CpuStream, AWaitBindsToTheLatestRecordBeforeTheCall) {
  cpu::CpuStream a("a", {}), b("b", {});
  cpu::CpuEvent event;
  Gate gate;
  Gate* const held = &gate;
  a.record(event);  // nothing before it: reached at once
  b.wait(event);    // binds to that record ...
  a.enqueue([held] { held->pass(); });
  a.record(event);  // ... and not to this one
  b.synchronize();  // would hang otherwise
  EXPECT_FALSE(event.reached());
  gate.open();
  event.wait();
  EXPECT_TRUE(event.reached());
  a.synchronize();
}

TEST(CpuStream, ALaterRecordOnAnotherStreamDoesNotReleaseAnEarlierWait) {
  cpu::CpuStream slow("slow", {}), fast("fast", {}), waiter("waiter", {});
  cpu::CpuEvent event, done;
  Gate gate;
  Gate* const held = &gate;
  std::atomic<int> waiting{0};
  std::atomic<int>* const thread = &waiting;
  slow.enqueue([held] { held->pass(); });
  slow.record(event);
  waiter.enqueue([thread] {
    thread->store(gettid());
    thread->notify_all();
  });
  waiter.wait(event);
  waiter.record(done);
  fast.record(event);
  event.wait();  // the latest record: reached, since `fast` is idle
  waiting.wait(0);
  test::wait_until_asleep(waiting);  // in the wait; were it released, with its work done
  EXPECT_FALSE(done.reached());
  gate.open();
  waiter.synchronize();
  EXPECT_TRUE(done.reached());
  slow.synchronize();
}

TEST(CpuStream, AMissingWaitIsVisible) {
  // Two streams do run at once: without a wait the consumer overtakes the producer.
  cpu::CpuStream producer("producer", {}), consumer("consumer", {});
  Gate gate;
  Gate* const held = &gate;
  std::atomic<int> value{0}, seen{-1};
  std::atomic<int>*const to = &value, *const copy = &seen;
  producer.enqueue([held, to] {
    held->pass();
    to->store(1);
  });
  consumer.enqueue([to, copy] { copy->store(to->load()); });
  consumer.synchronize();
  EXPECT_EQ(seen.load(), 0);
  gate.open();
  producer.synchronize();
}

TEST(CpuStream, AFailureSkipsLaterWorkReachesEventsAndIsThrownOnce) {
  cpu::CpuStream stream("failing", {}), other("other", {});
  cpu::CpuEvent event;
  std::atomic<int> runs{0};
  std::atomic<int>* const count = &runs;
  stream.enqueue([] { throw Error("disk on fire"); });
  stream.enqueue([count] { ++*count; });
  stream.record(event);
  other.wait(event);
  other.synchronize();
  event.wait();
  try {
    stream.synchronize();
    ADD_FAILURE() << "the failure was lost";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("disk on fire"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("stream 'failing'"), std::string::npos);
  }
  EXPECT_EQ(runs.load(), 0);
  stream.enqueue([count] { ++*count; });
  stream.synchronize();
  EXPECT_EQ(runs.load(), 1);
}

TEST(CpuStream, AForeignExceptionArrivesAsAnError) {
  cpu::CpuStream stream("foreign", {});
  stream.enqueue([] { throw std::bad_alloc(); });
  EXPECT_THROW(stream.synchronize(), Error);
}

TEST(CpuStream, MoreWorkThanTheRingHoldsIsTakenInTurn) {
  cpu::CpuStream stream("full", {});
  std::atomic<int> runs{0};
  std::atomic<int>* const count = &runs;
  for (int i = 0; i < 5000; ++i) stream.enqueue([count] { ++*count; });
  stream.synchronize();
  EXPECT_EQ(runs.load(), 5000);
}

TEST(CpuStream, TheDestructorFinishesWhatWasQueued) {
  std::atomic<int> runs{0};
  {
    cpu::CpuStream stream("ending", {});
    std::atomic<int>* const count = &runs;
    for (int i = 0; i < 100; ++i) stream.enqueue([count] { ++*count; });
  }
  EXPECT_EQ(runs.load(), 100);
}

TEST(CpuStream, AnEventOutlivesTheStreamThatRecordedIt) {
  cpu::CpuEvent event;
  {
    cpu::CpuStream stream("gone", {});
    stream.enqueue([] {});
    stream.record(event);
  }
  EXPECT_TRUE(event.reached());
  event.wait();
}

TEST(Pool, CallsEveryIndexOnceOnAnySize) {
  for (const int size : {1, 2, 5}) {
    cpu::Pool pool(size, {});
    for (const std::size_t count : {0, 1, 2, 3, 100}) {
      std::vector<std::atomic<int>> calls(count);
      pool.for_each(count, [&](std::size_t i, std::size_t worker) {
        EXPECT_LT(worker, pool.size());
        ++calls[i];
      });
      for (const auto& made : calls) EXPECT_EQ(made.load(), 1);
    }
  }
}

TEST(Pool, OfMoreThreadsThanCoresCallsEveryIndexOnceHoweverLateAWorkerWakes) {
  cpu::Pool pool(9, {});
  std::array<std::atomic<int>, 20> calls{};
  std::size_t expected = 0;
  for (std::size_t call = 0; call < 20000; ++call) {
    const std::size_t count = 2 + call % (calls.size() - 1);
    std::size_t sum = 0;
    std::atomic<std::size_t> made{0};
    pool.for_each(count, [&, call](std::size_t i, std::size_t) {
      ++calls[i];
      made += call + i;
    });
    for (std::size_t i = 0; i < count; ++i) sum += call + i;
    ASSERT_EQ(made.load(), sum) << call;
    expected += count;
  }
  EXPECT_EQ(std::accumulate(calls.begin(), calls.end(), std::size_t{0}), expected);
}

std::atomic<bool> g_held{false}, g_release{false};  // of a thread in hold()

void hold(int) {
  g_held = true;
  while (!g_release) {
  }
}

std::set<int> threads_of_this_process() {
  std::set<int> ids;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    ids.insert(std::stoi(task.path().filename()));
  return ids;
}

TEST(Pool, DoesNotWaitForAWorkerThatHasTakenNothing) {
  const std::set<int> before = threads_of_this_process();
  cpu::Pool pool(2, {});
  std::set<int> now = threads_of_this_process();
  for (const int id : before) now.erase(id);
  ASSERT_EQ(now.size(), 1u);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until the worker sleeps
  const auto old = std::signal(SIGUSR1, hold);
  ASSERT_EQ(syscall(SYS_tgkill, getpid(), *now.begin(), SIGUSR1), 0);
  while (!g_held) std::this_thread::yield();

  std::atomic<int> calls{0};
  auto done = std::async(std::launch::async, [&] {
    for (int call = 0; call < 3; ++call)
      pool.for_each(10, [&](std::size_t, std::size_t worker) { calls += worker == 0; });
  });
  EXPECT_EQ(done.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(calls.load(), 30);
  g_release = true;
  done.get();
  std::signal(SIGUSR1, old);
}

TEST(Pool, RethrowsAndWorksAgain) {
  cpu::Pool pool(3, {});
  for (int round = 0; round < 20; ++round)
    EXPECT_THROW(pool.for_each(50,
                               [](std::size_t i, std::size_t) {
                                 if (i % 10 == 3) throw Error("no");
                               }),
                 Error);
  std::atomic<int> calls{0};
  pool.for_each(50, [&](std::size_t, std::size_t) { ++calls; });
  EXPECT_EQ(calls.load(), 50);
}

TEST(Pool, RefusesACpuItMayNotUse) {
  const std::vector<int> none = {1023};
  EXPECT_THROW(cpu::Pool(2, none), Error);
  EXPECT_THROW(cpu::CpuStream("bound", none), Error);
}

TEST(CpuDevice, OpsOfTwoStreamsShareThePoolAndTheScratch) {
  const auto device = make_device({.threads = 2});
  std::mt19937 random(1);
  const std::size_t n = 20, k = 512, m = 64;
  const auto a = device->make_stream("a"), b = device->make_stream("b");
  OnDevice x(*device, *a, bytes_of(random_floats(n * k, random)));
  OnDevice w(*device, *a, random_weights(DType::kBF16, m, k, random));
  OnDevice ya(*device, *a, bytes_of(std::vector<float>(n * m)));
  OnDevice yb(*device, *b, bytes_of(std::vector<float>(n * m)));
  for (int round = 0; round < 50; ++round)
    for (auto* const to : {&ya, &yb}) {
      const Projection p{w.weights(DType::kBF16, m, k), {}, to->view(DType::kF32, {n, m})};
      device->ops().linear(to == &ya ? *a : *b, x.view(DType::kF32, {n, k}), {&p, 1});
    }
  EXPECT_EQ(ya.read<float>(), yb.read<float>());
}

TEST(CpuDevice, ReservedCallsAllocateNothingMore) {
  const auto device = make_device({.threads = 2});
  Workload largest;
  largest.rows = 64, largest.columns = 1024, largest.vocab = 1000;
  largest.heads = 4, largest.kv_heads = 2, largest.head_dim = 32, largest.context = 300;
  EXPECT_GT(device->ops().scratch_bytes(largest), 64 * 1024 * sizeof(float));
  Workload smaller = largest;
  smaller.context = 299, smaller.columns = 1000, smaller.rows = 63;
  EXPECT_LE(device->ops().scratch_bytes(smaller), device->ops().scratch_bytes(largest));
  device->ops().reserve(largest);
}

TEST(CpuDevice, AllocatesAlignedZeroedMemoryAndRefusesTheImpossible) {
  const auto device = make_device({.threads = 1});
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{1} << 20}) {
    const Buffer buffer = device->allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 0u);
    EXPECT_EQ(buffer.bytes(), bytes);
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(buffer.data()[i], std::byte{0});
  }
  EXPECT_THROW(device->allocate(std::numeric_limits<std::size_t>::max() - 5), Error);
  EXPECT_THROW(device->allocate(std::size_t{1} << 60), Error);
  EXPECT_GT(device->free_bytes(), 0u);
}

TEST(MakeDevice, NamesTheBuiltInKindsWhenTheAskedOneIsMissing) {
  try {
    make_device({.kind = "abacus"});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("'abacus'; built in: cpu"), std::string::npos);
  }
  EXPECT_THROW(make_device({.threads = -1}), Error);
}

}  // namespace
}  // namespace canopy
