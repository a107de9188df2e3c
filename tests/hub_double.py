"""A server on this machine that answers the few requests of the Hub's client which the pipeline makes."""

import hashlib
import json
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REVISION = "0123456789abcdef0123456789abcdef01234567"


def git_digest(data):
    """Git's name of a file's content."""
    return hashlib.sha1(b"blob %d\x00" % len(data) + data).hexdigest()


class HubDouble:
    """Serves one repository at one commit; ``lies`` holds names whose content differs from the listed checksum."""

    def __init__(self, hub_id, files, large=(), lies=()):
        self.hub_id, self.files, self.large, self.lies = hub_id, files, set(large), set(lies)
        self.fetched = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_HEAD(self):
                self.answer(head=True)

            def do_GET(self):
                self.answer()

            def answer(self, head=False):
                status, headers, body = hub.reply(urllib.parse.unquote(urllib.parse.urlparse(self.path).path), head)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if not head:
                    self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def entry(self, name):
        data = self.files[name]
        entry = {"type": "file", "path": name, "size": len(data), "oid": git_digest(data)}
        if name in self.large:
            entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        return entry

    def reply(self, path, head):
        as_json = {"Content-Type": "application/json"}
        if f"/{self.hub_id}/" not in path + "/":
            return 404, as_json | {"X-Error-Code": "RepoNotFound"}, b'{"error": "Repository not found"}'
        if "/tree/" in path:
            return 200, as_json, json.dumps([self.entry(name) for name in self.files]).encode()
        if "/resolve/" in path:
            name = path.split(f"/resolve/{REVISION}/")[1]
            data = b"other bytes" if name in self.lies else self.files[name]
            if not head:
                self.fetched.append(name)
            return 200, {"ETag": f'"{self.entry(name)["oid"]}"', "X-Repo-Commit": REVISION}, data
        siblings = [{"rfilename": name} for name in self.files]
        return 200, as_json, json.dumps({"id": self.hub_id, "sha": REVISION, "siblings": siblings}).encode()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(5)
