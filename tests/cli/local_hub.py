"""A Hub of this machine: an endpoint that lists and redirects, and a second host, on another port, that has the large files."""
import collections
import hashlib
import http.server
import json
import re
import socket
import threading
import time
import urllib.parse

COMMIT = "c0ffee" * 6 + "c0ff"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        headers.setdefault("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def handle(self):
        try:
            super().handle()
        except (ConnectionError, BrokenPipeError):
            pass  # the client was killed

    def do_HEAD(self):
        self.do_GET()


class Endpoint(Handler):
    def do_GET(self):
        hub = self.server.hub
        hub.requests.append(("endpoint", self.command, self.path, self.headers))
        if hub.endpoint_faults:
            status, headers = hub.endpoint_faults.popleft()
            return self.answer(status, **headers)
        path = urllib.parse.unquote(self.path)
        if hub.renamed and hub.renamed in path:
            return self.answer(307, Location=self.path.replace(hub.renamed, hub.id))
        if path == f"/api/models/{hub.id}/revision/main?blobs=true":
            return self.answer(200, json.dumps(hub.listing()).encode())
        found = re.fullmatch(rf"/{hub.id}/resolve/{COMMIT}/(.+)", path)
        if not found or found[1] not in hub.files:
            code = "EntryNotFound" if found else "RevisionNotFound" if hub.id in path else "RepoNotFound"
            return self.answer(404 if code != "RepoNotFound" else 401, b"", X_Error_Code=code)
        name, data = found[1], hub.files[found[1]]
        if name not in hub.large:
            return self.answer(200, data, ETag=f'"{hashlib.sha1(data).hexdigest()}"')
        hub.signatures += 1
        hub.valid.add(hub.signatures)
        linked = {"ETag": hub.etags.get(name, hashlib.sha256(data).hexdigest()), "Size": str(hub.sizes.get(name, len(data)))}
        self.answer(302, Location=f"{hub.store_url}/{urllib.parse.quote(name)}?signature={hub.signatures}", X_Repo_Commit=COMMIT,
                    X_Linked_ETag=f'"{linked["ETag"]}"', X_Linked_Size=linked["Size"])


class Store(Handler):
    """The host of large files. `hub.on_store(handler, first, last)` may answer in its place, and is true then."""

    def do_GET(self):
        hub = self.server.hub
        url = urllib.parse.urlsplit(self.path)
        hub.requests.append(("store", self.command, self.path, self.headers))
        data = hub.files[urllib.parse.unquote(url.path[1:])]
        if int(urllib.parse.parse_qs(url.query)["signature"][0]) not in hub.valid:
            return self.answer(403, b"expired")
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
        with hub.lock:
            hub.ranges.append((first, last))
            hub.now += 1
            hub.most_now = max(hub.most_now, hub.now)
        try:
            if not hub.on_store(self, first, last):
                time.sleep(hub.delay)
                self.range(data, first, last)
        finally:
            with hub.lock:
                hub.now -= 1

    def range(self, data, first, last, etag="one", total=None, send=None):
        """Sends a range, or its first `send` bytes and then the end of the connection."""
        body = data[first:last + 1]
        self.send_response(206)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Range", f"bytes {first}-{last}/{total or len(data)}")
        self.send_header("ETag", f'"{etag}"')
        self.end_headers()
        self.wfile.write(body if send is None else body[:send])
        if send is not None:
            self.cut()

    def cut(self):
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)


class Hub:
    def __init__(self, test, files, large, repository="org/model"):
        self.id, self.files, self.large = repository, dict(files), set(large)
        self.renamed, self.etags, self.sizes, self.listed = None, {}, {}, {}
        self.requests, self.ranges, self.valid = [], [], set()
        self.endpoint_faults = collections.deque()
        self.on_store = lambda *_: False
        self.signatures = self.now = self.most_now = 0
        self.delay = 0
        self.lock = threading.Lock()
        self.servers = []
        self.url, self.store_url = (self.serve(test, kind) for kind in (Endpoint, Store))

    def serve(self, test, kind):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
        server.hub, server.daemon_threads = self, True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        self.servers.append(server)
        test.addCleanup(server.server_close)
        test.addCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.server_port}"

    def fail(self, status, **headers):
        """The endpoint's next reply."""
        self.endpoint_faults.append((status, headers))

    def listing(self):
        files = [{"rfilename": name, "size": len(data)} for name, data in self.files.items()]
        for file in files:
            if file["rfilename"] in self.large:
                file["lfs"] = {"sha256": hashlib.sha256(self.files[file["rfilename"]]).hexdigest()}
            file.update(self.listed.get(file["rfilename"], {}))
        return {"id": self.id, "sha": COMMIT, "siblings": files}

    def of(self, host):
        return [(method, path) for where, method, path, _ in self.requests if where == host]
