"""A server of three ranks: texts are those of one process, whoever leaves, and it ends in order when a rank is lost."""
import concurrent.futures
import os
import re
import signal
import time
import unittest

from serving import CANOPY, PATIENCE, Server, TempDirCase, main  # noqa: E402: which knows where the next are
from mpirun import HAS_MPIRUN, MPIRUN, ROOT, has_mpi, processes, random_model, rank_of
from support import PROFILE, TOKENIZER

TEXT = "/v1/completions"
TIMEOUT, SPARE = 2, 5 * PATIENCE  # seconds: of a rank that says nothing; and what ending takes
CANCELLED = 100


@unittest.skipUnless(HAS_MPIRUN and has_mpi(), "built without MPI, or there is no mpirun")
class RanksServe(TempDirCase):
    def setUp(self):
        super().setUp()
        self.before = processes(CANOPY)
        self.model = random_model(self.dir / "model", TOKENIZER)
        self.flags = ("-c", 512, "--parallel", 4, "--queue", 200, "--memory", "300M", "--resident", "none", "--profile", PROFILE,
                      "-md", "ngram:2", "--no-learn")

    def serve(self, ranks=3):
        if ranks == 1:
            return Server(self.model, *self.flags)
        return Server(self.model, *self.flags, "--rank-timeout", TIMEOUT, launcher=[*MPIRUN, "-n", ranks], env=os.environ | ROOT)

    def end(self, server, seconds):
        """Waits for the end of all ranks; returns the exit code."""
        code = server.process.wait(seconds)
        server.reader.join()
        self.assertEqual(processes(CANOPY) - self.before, set(), "a process was left")
        return code

    @staticmethod
    def asked(i):
        return {"prompt": f"text {i}", "max_tokens": 40, "ignore_eos": True, **({"temperature": 1, "seed": i} if i % 2 else {})}

    def test_cancelled_requests_leave_the_texts_of_others_alone(self):
        def text(server, i):
            return server.post(TEXT, self.asked(i))["choices"][0]["text"]
        with self.serve(1) as server:
            alone = [text(server, i) for i in range(12)]
        with self.serve() as server:
            def cancel(i):
                stream = server.open(TEXT, {"prompt": f"cancelled {i}", "max_tokens": 400, "ignore_eos": True})
                if i % 3:  # the others leave while they wait, or while their prompt is read
                    stream.until_text()
                stream.close()
            with concurrent.futures.ThreadPoolExecutor(16) as threads:
                cancelled = [threads.submit(cancel, i) for i in range(CANCELLED)]
                texts = list(threads.map(lambda i: text(server, i), range(12)))
                for one in cancelled:
                    one.result()
            self.assertEqual(texts, alone)
            self.assertEqual(server.until_texts(0, within=20), 0)
            self.assertEqual(text(server, 3), alone[3])
            ranks = sorted(processes(CANOPY) - self.before, key=rank_of)
            os.kill(ranks[0], signal.SIGTERM)
            self.assertEqual(self.end(server, 30), 0, server.log)

    def lose(self, server, which):
        ranks = sorted(processes(CANOPY) - self.before, key=rank_of)
        self.assertEqual(len(ranks), 3)
        os.kill(ranks[which], signal.SIGSTOP)
        return time.monotonic()

    def check_end(self, server, since, which):
        self.assertEqual(self.end(server, 60), 1)
        self.assertLess(time.monotonic() - since, TIMEOUT + SPARE)
        messages = re.findall(r"(?m)^canopy serve: .*", server.log)
        self.assertEqual(len(messages), 1, server.log)
        self.assertRegex(messages[0], rf"rank {which} \(.+\) did not answer for {TIMEOUT} s")

    def test_metrics_and_props_say_what_each_rank_does(self):
        with self.serve(2) as server:
            def figures(name):
                return [float(value) for value in re.findall(rf'(?m)^canopy_rank_{name}{{rank="\d",host="[^"]+"}} (.+)$',
                                                             server.ask("GET", "/metrics").body.decode())]
            self.assertEqual(figures("link_bytes_total"), [0, 0])
            server.post(TEXT, {"prompt": "abc", "max_tokens": 20, "ignore_eos": True})
            read, sweep = figures("link_bytes_total"), server.get("/props")["canopy"]["sweep_bytes"]
            # Each has read its half in each of the sweeps, of which drafts save some. Matrices are cut between blocks of rows.
            for of_rank in read:
                self.assertGreater(of_rank, sweep)
                self.assertLess(of_rank, 40 * sweep)
            for name in "link_busy_seconds_total", "stall_seconds_total", "wait_seconds_total":
                self.assertEqual(len(figures(name)), 2)
            self.assertTrue(all(figures("link_busy_seconds_total")))
            self.assertTrue(all(figures("wait_seconds_total")))
            ranks = server.get("/props")["canopy"]["ranks"]
            self.assertEqual([(one["rank"], one["share"]) for one in ranks["all"]], [(0, 1), (1, 1)])
            self.assertGreater(ranks["bytes_per_second"], 0)
        with self.serve(1) as server:
            self.assertNotIn("canopy_rank_", server.ask("GET", "/metrics").body.decode())
            self.assertNotIn("ranks", server.get("/props")["canopy"])

    def test_a_rank_that_is_lost_ends_texts_with_503_and_the_server(self):
        with self.serve() as server, concurrent.futures.ThreadPoolExecutor(2) as threads:
            long = {"prompt": "abc", "max_tokens": 500, "ignore_eos": True}
            whole = threads.submit(server.ask, "POST", TEXT, long)
            stream = server.open(TEXT, long)
            stream.until_text()
            since = self.lose(server, 1)
            error = list(stream)[-1]["error"]
            self.assertEqual(error["code"], 503)
            self.assertIn("rank 1", error["message"])
            self.assertEqual(whole.result().status, 503)
            self.check_end(server, since, 1)

    def test_a_rank_that_is_lost_while_nobody_asks_ends_the_server(self):
        with self.serve() as server:
            server.text("abc", 3)
            self.check_end(server, self.lose(server, 2), 2)


if __name__ == "__main__":
    main()
