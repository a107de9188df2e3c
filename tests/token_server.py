"""A deterministic stand-in for the engine's HTTP side, for tests of capture, limits and failures.

It answers like vLLM with token ids and log-probabilities; a token is a byte of the conversation's text, so each prompt
extends the one before. What it says depends on a word in the task's instruction and on the number of tool results.
It is no stand-in for a policy: no test of training or measurement uses it.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

LOGPROB = -0.5
CALLS = {
    "RIGHT": "ls; printf 42 > /workdir/answer.txt",
    "WRONG": "printf 41 > /workdir/answer.txt",
    "NOFILE": "printf 42 > /workdir/answer.txt",
    "NULLKEY": "printf 42 > /workdir/answer.txt",
    "DIES": "printf 42 > /workdir/answer.txt",
    "CONTEXT": "printf 42 > /workdir/answer.txt",
    "LOOP": "printf 42 > /workdir/answer.txt; echo again",
    "HANG": "printf 42 > /workdir/answer.txt",
    "VISIT": "printf 42 > /workdir/answer.txt",
}
MARKUP = "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>"


class TokenServer:
    """Context manager; ``requests`` holds every chat request, ``models`` the names it serves."""

    def __init__(self, port: int = 0) -> None:
        self.requests: list[dict[str, Any]] = []
        self.models = ["policy"]
        self.closing = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                data = [{"id": name, "object": "model"} for name in server.models]
                self.answer(200, {"object": "list", "data": data})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self.answer(*server.reply(body))

            def answer(self, status: int, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                try:
                    self.send_response(status)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    self.close_connection = True

        self._http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> TokenServer:
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()

    def reply(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and body for one chat request."""
        self.requests.append(body)
        if body["model"] not in self.models:
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist.", "code": 404}}
        messages = body["messages"]
        results = sum(message["role"] == "tool" for message in messages)
        word = word_of(messages)
        if word == "HANG" and results:
            self.closing.wait(120)
        if word == "DIES" and results:
            return 500, {"error": {"message": "EngineCore encountered an issue", "type": "InternalServerError"}}
        if word == "CONTEXT" and results:
            text = "This model's maximum context length is 2048 tokens. However, your request has 2100 input tokens."
            return 400, {"error": {"message": text, "type": "BadRequestError", "code": 400}}
        message: dict[str, Any] = {"role": "assistant", "content": "Done."}
        if word == "MARKUP":
            message["content"] = MARKUP
        elif word is not None and body.get("tools") and (word == "LOOP" or not results):
            arguments = json.dumps({"command": CALLS[word]})
            function = {"name": "bash", "arguments": arguments}
            message |= {
                "content": None,
                "tool_calls": [{"id": f"c{results}", "type": "function", "function": function}],
            }
        prompt = json.dumps(body.get("tools") or []) + "".join(rendered(past) for past in messages) + "<assistant>"
        return 200, completion(body["model"], prompt, message)


def word_of(messages: list[dict[str, Any]]) -> str | None:
    """The word that steers the answers: the first known one in a user's message."""
    text = json.dumps([message["content"] for message in messages if message["role"] == "user"])
    return next((word for word in (*CALLS, "MARKUP") if word in text), None)


def rendered(message: dict[str, Any]) -> str:
    """A message as text; an assistant's past message reads exactly as its tokens did."""
    return f"<{message['role']}>{body_of(message)}</>"


def body_of(message: dict[str, Any]) -> str:
    """Content and tool calls as text, independent of the spacing of JSON."""
    content = message.get("content") or ""
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    for call in message.get("tool_calls") or []:
        text += call["function"]["name"] + json.dumps(json.loads(call["function"]["arguments"]), sort_keys=True)
    return text


def completion(model: str, prompt: str, message: dict[str, Any]) -> dict[str, Any]:
    """vLLM's answer with ``return_token_ids`` and ``logprobs``."""
    prompt_ids = list(prompt.encode())
    ids = list((body_of(message) + "</>").encode())
    content = [{"token": f"token_id:{i}", "logprob": LOGPROB, "bytes": None, "top_logprobs": []} for i in ids]
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
        "token_ids": ids,
        "logprobs": {"content": content},
    }
    usage = {
        "prompt_tokens": len(prompt_ids),
        "completion_tokens": len(ids),
        "total_tokens": len(prompt_ids) + len(ids),
    }
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [choice],
        "usage": usage,
        "prompt_token_ids": prompt_ids,
    }
