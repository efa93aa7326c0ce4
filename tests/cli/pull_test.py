"""canopy pull and -hf, against a Hub of this machine that cuts, stalls, refuses and lies: nothing half-written is ever loaded, and no
token goes to a second host."""
import hashlib
import json
import os
import resource
import signal
import socket
import subprocess
import time
import unittest

from local_hub import COMMIT, Hub
from support import CANOPY, PATIENCE, TempDirCase, bytes_model, main, run

MIB = 1 << 20
BIG = os.urandom(40 * MIB)  # noise in place of weights: five pieces of 8 MiB
TOKEN = "hf_of_the_test"


class PullCase(TempDirCase):
    def setUp(self):
        super().setUp()
        self.home = self.dir / "home"
        self.cache = self.home / "hub" / "models--org--model"
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("HF_") and "proxy" not in name.lower()}
        self.env |= {"HF_HOME": str(self.home), "HF_TOKEN": TOKEN, "HF_HUB_DOWNLOAD_TIMEOUT": str(5 * PATIENCE), "no_proxy": "*"}

    def serve(self, files, large=()):
        self.hub = Hub(self, files, large)
        self.env["HF_ENDPOINT"] = self.hub.url
        return self.hub

    def serve_big(self):
        return self.serve({"big-Q8_0.gguf": BIG, "README.md": b"text"}, ["big-Q8_0.gguf"])

    def serve_folder(self):
        """A random model of two layers, with files that no command reads."""
        self.model = bytes_model(self.dir / "model")
        files = {path.name: path.read_bytes() for path in self.model.iterdir()}
        files |= {"pytorch_model.bin": b"x", "onnx/model.onnx": b"x", "README.md": b"x"}
        return self.serve(files, ["model.safetensors"])

    def canopy(self, *words, code=0, **options):
        result = run(*words, env=self.env, **options)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def pulled(self, *words):
        return json.loads(self.canopy("pull", "org/model", "--json", *words).stdout)

    def fails(self, *says, words=("pull", "org/model"), code=1, **options):
        stderr = self.canopy(*words, code=code, **options).stderr
        for word in says:
            self.assertIn(word, stderr)
        return stderr

    def growing(self):
        """The one file that is not whole."""
        [path] = self.cache.glob("blobs/*.incomplete")
        return path

    def assert_big(self, path):
        self.assertEqual(hashlib.sha256(open(path, "rb").read()).digest(), hashlib.sha256(BIG).digest())
        self.assertEqual(list(self.cache.glob("blobs/*.incomplete")), [])

    def assert_nothing_to_load(self):
        self.assertEqual([path for path in self.cache.glob("snapshots/**/*") if not path.is_dir()], [])
        self.assertEqual([path for path in self.cache.glob("blobs/*") if path.suffix != ".incomplete"], [])

    def tearDown(self):
        hub = getattr(self, "hub", None)
        for host, _, path, headers in hub.requests if hub else ():
            if host == "store":
                self.assertNotIn("Authorization", headers, path)
                self.assertNotIn(TOKEN, str(headers) + path)
            else:
                self.assertEqual(headers["Authorization"], f"Bearer {TOKEN}", path)
        super().tearDown()


class Layout(PullCase):
    def test_a_folder_is_laid_out_as_huggingface_hub_has_it_and_holds_what_commands_read(self):
        self.serve_folder()
        path = self.canopy("pull", "org/model").stdout.strip()
        snapshot = self.cache / "snapshots" / COMMIT
        self.assertEqual(path, str(snapshot))
        self.assertEqual((self.cache / "refs" / "main").read_text(), COMMIT)
        names = {file.name for file in snapshot.iterdir()}
        self.assertEqual(names, {"config.json", "tokenizer.json", "model.safetensors"} & set(self.hub.files) | (
            {"generation_config.json"} & set(self.hub.files)))
        for name in names:
            data = self.hub.files[name]
            etag = (hashlib.sha256 if name == "model.safetensors" else hashlib.sha1)(data).hexdigest()
            self.assertEqual(os.readlink(snapshot / name), f"../../blobs/{etag}")
            self.assertEqual((snapshot / name).read_bytes(), data)

    def test_hf_pulls_what_is_missing_and_then_asks_nobody(self):
        self.serve_folder()
        generate = "-p", "ab", "-n", "4", "--ignore-eos", "--temp", "0"
        first = self.canopy("generate", "-hf", "org/model", *generate)
        self.assertIn(f"org/model is {self.cache / 'snapshots' / COMMIT}", first.stderr)
        asked = len(self.hub.requests)
        self.assertEqual(self.canopy("generate", "-hf", "org/model", *generate).stdout, first.stdout)
        self.assertEqual(self.canopy("generate", "-m", self.model, *generate).stdout, first.stdout)
        drafted = self.canopy("generate", "-hf", "org/model", "-hfd", "org/model", *generate)
        self.assertEqual(drafted.stdout, first.stdout)
        self.assertEqual(len(self.hub.requests), asked)
        for words in (["inspect", "-hf", "org/model"], ["plan", "-hf", "org/model"], ["tokenize", "-hf", "org/model", "-p", "a"],
                      ["quantize", "-hf", "org/model", "-o", self.dir / "q.gguf", "--type", "q8_0"]):
            self.canopy(*words)
        self.assertEqual(len(self.hub.requests), asked)

    def test_pull_asks_each_time_and_fetches_what_is_new(self):
        self.serve_folder()
        first = self.pulled()
        self.assertEqual(first["downloaded_bytes"], first["bytes"])
        self.assertEqual((first["repository"], first["revision"], first["commit"]), ("org/model", "main", COMMIT))
        before = len(self.hub.requests)
        self.assertEqual(self.pulled()["downloaded_bytes"], 0)
        self.assertEqual([path for _, path in self.hub.of("endpoint")[before:]], [])
        self.assertEqual(len(self.hub.of("endpoint")) + len(self.hub.of("store")), before + 1)

    def test_what_huggingface_hub_has_downloaded_is_found_without_a_network(self):
        model = bytes_model(self.dir / "model")
        snapshot = self.cache / "snapshots" / COMMIT
        for folder in (snapshot, self.cache / "blobs", self.cache / "refs"):
            folder.mkdir(parents=True)
        (self.cache / "refs" / "main").write_text(COMMIT)
        for number, file in enumerate(model.iterdir()):
            file.rename(self.cache / "blobs" / str(number))
            (snapshot / file.name).symlink_to(f"../../blobs/{number}")
        with socket.socket() as nobody:  # listens to nobody: refuses
            nobody.bind(("127.0.0.1", 0))
            self.env["HF_ENDPOINT"] = f"http://127.0.0.1:{nobody.getsockname()[1]}"
            said = self.canopy("inspect", "-hf", "org/model").stderr
            self.assertIn("the Hub cannot be asked", said)
            self.fails("onnect", words=("pull", "org/model"))
            self.fails("has nothing of org/other", words=("inspect", "-hf", "org/other"))
        self.env["HF_HUB_OFFLINE"] = "1"
        self.assertNotIn("cannot be asked", self.canopy("inspect", "-hf", "org/model").stderr)
        self.assertEqual(self.canopy("pull", "org/model").stdout.strip(), str(snapshot))
        self.fails("HF_HUB_OFFLINE", "has nothing of org/other", words=("pull", "org/other"))
        (snapshot / "model.safetensors").unlink()
        self.fails("model.safetensors", words=("inspect", "-hf", "org/model"))

    def test_shards_are_those_of_the_index(self):
        hub = self.serve_folder()
        hub.files["model-00001-of-00001.safetensors"] = hub.files.pop("model.safetensors")
        hub.files["model.safetensors.index.json"] = json.dumps({"weight_map": {"x": "model-00001-of-00001.safetensors"}}).encode()
        hub.files["other.safetensors"] = b"x"
        hub.large = {"model-00001-of-00001.safetensors"}
        self.assertIn("model-00001-of-00001.safetensors", self.pulled()["files"])
        self.assertFalse((self.cache / "snapshots" / COMMIT / "other.safetensors").exists())
        shard = self.cache / "snapshots" / COMMIT / "model-00001-of-00001.safetensors"
        shard.unlink()
        self.canopy("tokenize", "-hf", "org/model", "-p", "a", code=1)  # the index of a test names one tensor of many
        self.assertTrue(shard.exists())

    def test_a_quant_names_a_file_and_what_there_is_is_said_where_none_matches(self):
        self.serve({"a/x-Q8_0-00001-of-00002.gguf": b"1", "a/x-Q8_0-00002-of-00002.gguf": b"2", "x-Q4_K_M.gguf": b"3"})
        self.assertTrue(self.pulled()["path"].endswith("/x-Q4_K_M.gguf"))
        split = json.loads(self.canopy("pull", "org/model:q8_0", "--json").stdout)
        self.assertTrue(split["path"].endswith("/a/x-Q8_0-00001-of-00002.gguf"))
        self.assertEqual(len(split["files"]), 2)
        self.fails("'Q2_K'", "a/x-Q8_0 (2 parts), x-Q4_K_M", words=("pull", "org/model:Q2_K"))

    def test_a_renamed_repository_is_followed(self):
        self.serve_folder()
        self.hub.renamed = "org/old"
        self.assertIn("models--org--old", self.canopy("pull", "org/old").stdout)

    def test_wrong_usage_is_code_2_and_asks_nobody(self):
        self.serve_folder()
        for words, says in ((["generate", "-m", self.model, "-hf", "org/model", "-p", "a"], "--model, --hf-repo"),
                            (["generate", self.model, "-hf", "org/model", "-md", "x", "-hfd", "org/model"], "--model-draft, --hf-repo-draft"),
                            (["inspect", self.model, "-hf", "org/model"], "belongs to no flag"),
                            (["inspect", "-hf", "org//model"], "not a repository"),
                            (["inspect", "-hf", "../model"], "not a repository"), (["inspect"], "--model"),
                            (["pull"], "--hf-repo"), (["pull", "a", "b"], ""), (["pull", "a b"], "not a repository"),
                            (["generate", "-hf", "org/model", "-p", "a", "--tree", "5x8"], "")):
            self.fails(says, words=words, code=2)
        self.assertEqual(self.hub.requests, [])


class Downloads(PullCase):
    def test_a_large_file_comes_over_four_connections(self):
        hub = self.serve_big()
        hub.delay = 0.3
        self.assert_big(self.pulled()["path"])
        self.assertEqual(hub.most_now, 4)
        self.assertEqual(len(hub.ranges), 5)

    def test_replies_that_are_cut_go_on_where_they_stopped(self):
        hub = self.serve_big()
        cuts = iter(range(6))
        hub.on_store = lambda handler, first, last: next(cuts, None) is not None and (
            handler.range(BIG, first, last, send=3 * MIB) or True)
        self.assert_big(self.pulled()["path"])
        self.assertLess(sum(last + 1 - first for first, last in hub.ranges), len(BIG) + 6 * 8 * MIB)
        self.assertTrue(any(first % (8 * MIB) == 3 * MIB for first, _ in hub.ranges))

    def test_a_stalled_reply_is_given_up(self):
        hub = self.serve_big()
        stalls = iter(range(2))
        self.env["HF_HUB_DOWNLOAD_TIMEOUT"] = "1"

        def stall(handler, first, last):
            if next(stalls, None) is None:
                return False
            time.sleep(2.5)
            handler.cut()
            return True

        hub.on_store = stall
        self.assert_big(self.pulled()["path"])

    def wait_for(self, process, condition):
        end = time.monotonic() + 30 * PATIENCE
        while not condition():
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def test_a_run_that_is_killed_or_interrupted_is_gone_on_with(self):
        hub = self.serve_big()
        for how in (signal.SIGKILL, signal.SIGINT):
            there = self.growing().stat().st_size if how == signal.SIGINT else 0
            before = len(hub.ranges)
            limit = there + 8 * MIB

            def slow(handler, first, last):
                if first < limit:
                    return False
                handler.range(BIG, first, last, send=MIB)
                return True

            hub.on_store = slow
            process = subprocess.Popen([CANOPY, "pull", "org/model"], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.wait_for(process, lambda: list(self.cache.glob("blobs/*.incomplete")) and self.growing().stat().st_size >= limit)
            process.send_signal(how)
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, 130 if how == signal.SIGINT else -how)
            kept = self.growing().read_bytes()
            self.assertEqual(kept, BIG[: len(kept)])
            self.assertLess(len(kept), len(BIG))
            self.assertGreaterEqual(min(first for first, _ in hub.ranges[before:]), there)
            self.assert_nothing_to_load()
        hub.on_store, before = (lambda *_: False), len(hub.ranges)
        pulled = self.pulled()
        self.assert_big(pulled["path"])
        self.assertEqual(min(first for first, _ in hub.ranges[before:]), len(kept))
        self.assertEqual(pulled["downloaded_bytes"], len(BIG) - len(kept))

    def test_an_address_that_expires_is_asked_for_again(self):
        hub = self.serve_big()

        def expire(handler, first, last):
            if len(hub.ranges) == 2:
                hub.valid.clear()
            return False

        hub.on_store = expire
        self.assert_big(self.pulled()["path"])
        self.assertEqual(hub.signatures, 2)

    def test_an_address_that_is_always_refused_ends(self):
        hub = self.serve_big()

        def never(handler, first, last):
            handler.answer(403)
            return True

        hub.on_store = never
        self.fails("refuses an address")
        self.assert_nothing_to_load()

    def test_a_busy_server_is_waited_for_as_it_asks(self):
        hub = self.serve_big()
        hub.fail(429, Retry_After="1")
        busy = iter(range(2))
        hub.on_store = lambda handler, first, last: next(busy, None) is not None and (handler.answer(503) or True)
        start = time.monotonic()
        self.assert_big(self.pulled()["path"])
        self.assertGreaterEqual(time.monotonic() - start, 1)
        hub.fail(429, Retry_After="3600")
        self.fails("429", "too many requests")

    def test_a_file_that_changes_between_ranges_starts_again(self):
        hub = self.serve_big()
        other = bytes(len(BIG))

        def change(handler, first, last):
            if len(hub.ranges) > 2:
                return False
            handler.range(other, first, last, etag="other")
            return True

        hub.on_store = change
        self.assert_big(self.pulled()["path"])

    def test_bytes_that_are_not_those_of_the_checksum_are_refused(self):
        hub = self.serve_big()
        wrong = BIG[:-1] + bytes([BIG[-1] ^ 1])
        hub.on_store = lambda handler, first, last: handler.range(wrong, first, last) or True
        self.fails("SHA-256", hashlib.sha256(BIG).hexdigest())
        self.assert_nothing_to_load()
        hub.on_store = lambda *_: False
        self.assert_big(self.pulled()["path"])

    def test_a_wrong_beginning_of_an_earlier_run_is_noticed(self):
        self.serve_big()
        begun = self.cache / "blobs" / (hashlib.sha256(BIG).hexdigest() + ".incomplete")
        begun.parent.mkdir(parents=True)
        begun.write_bytes(bytes(MIB))
        self.assert_big(self.pulled()["path"])

    def test_wrong_lengths_are_refused(self):
        hub = self.serve_big()
        hub.sizes["big-Q8_0.gguf"] = len(BIG) - 1
        self.fails("lists", str(len(BIG) - 1))
        hub.sizes.clear()
        hub.on_store = lambda handler, first, last: handler.range(BIG, first, last, total=len(BIG) + 1) or True
        self.fails(f"of a file of {len(BIG)} bytes")
        hub.on_store = lambda handler, first, last: handler.range(BIG[:-MIB], first, last, total=len(BIG)) or True
        self.fails("", code=1)
        self.assert_nothing_to_load()

    def test_a_full_disk_is_said_and_gone_on_from(self):
        hub = self.serve_big()
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20 * MIB, 20 * MIB))
        self.fails("cannot write", "File too large", preexec_fn=limit)
        self.assert_nothing_to_load()
        kept = self.growing().read_bytes()
        self.assertEqual(kept, BIG[: len(kept)])
        self.assertEqual(len(kept), 20 * MIB)
        before = len(hub.ranges)
        self.assert_big(self.pulled()["path"])
        self.assertEqual(min(first for first, _ in hub.ranges[before:]), 20 * MIB)

    def test_room_is_asked_for_before_anything_comes(self):
        hub = self.serve_big()
        hub.sizes["big-Q8_0.gguf"] = 1 << 60
        hub.listed["big-Q8_0.gguf"] = {"size": 1 << 60}
        self.fails("are to be downloaded", "HF_HOME")
        self.assertEqual(hub.ranges, [])


class Refusals(PullCase):
    def test_repositories_that_are_not_granted_say_what_to_do(self):
        hub = self.serve_folder()
        hub.fail(403, X_Error_Code="GatedRepo")
        self.fails("org/model is gated", f"accept its terms on {hub.url}/org/model")
        hub.fail(401, X_Error_Code="RepoNotFound")
        self.fails("there is no repository", "private")
        hub.fail(401)
        self.fails("refused (status 401)", "token")
        self.fails("no branch, tag or commit 'v9'", words=("pull", "org/model@v9"))
        self.fails("there is no repository", words=("inspect", "-hf", "org/nothing"))
        self.assert_nothing_to_load()

    def test_names_that_lead_out_of_the_cache_are_refused(self):
        hub = self.serve_folder()
        hub.files["../../../../evil.gguf"] = b"x"
        self.fails("leads out")
        del hub.files["../../../../evil.gguf"]
        hub.etags["model.safetensors"] = "../../../evil"
        hub.listed["model.safetensors"] = {"lfs": None}
        self.fails("no usable etag")
        self.assertEqual(list(self.dir.rglob("*evil*")), [])

    def test_a_listing_that_is_none_is_refused(self):
        hub = self.serve_folder()
        for wrong in ([], {"sha": "main", "siblings": []}, {"sha": COMMIT}):
            hub.listing = lambda: wrong
            self.fails(f"reading what {hub.url} lists of org/model")


if __name__ == "__main__":
    main()
